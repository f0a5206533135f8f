using System;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Npgsql;

public sealed class Answer
{
    public int Status;
    public string Headers = "{}";             // as they are stored: an object of strings, or arrays of strings
    public byte[] Body = Array.Empty<byte>();
}

public sealed class Request
{
    public string Key, Scope, Principal;
    public string Json;                       // the body, if it is JSON; else
    public byte[] Digest;                     // of all that the request is
    public string Method, Target;
    public TimeSpan Lease = TimeSpan.FromSeconds(30);
    public Func<int, bool> Keep = KeepByDefault;

    public static bool KeepByDefault(int status) => status < 500 && status != 408 && status != 425 && status != 429;
}

/// The answer of idem_begin, for the work.
public sealed class Claim
{
    public Request Request;
    public string Outcome, Key, Status, Headers, Error, RecoveryPoint, State;
    public long? Token;
    public int Attempt;
    public int? StatusCode;
    public byte[] Body;
    public bool BodyOmitted;
    public double? RetryAfter;

    /// In the transaction of the claim; null where the claim is leased.
    public NpgsqlConnection Connection;
    /// Cancelled when the lease is lost: have no further effect.
    public CancellationToken Lost;
    /// Leased: ends the claim, with an error and the other side's reference. Whether the work had its effect
    /// is not known. Repeats are refused until an operator decides; the answer of the work is not stored.
    public Func<string, string, Task> Unknown;
}

/// Thrown by leased work that knows that it has had no effect.
public sealed class NothingHappened : Exception
{
    public NothingHappened(string message, Exception cause = null) : base(message, cause) { }
}

public sealed class Ended
{
    public Claim Claim;                       // what idem_begin said last
    public Answer Answer;                     // of the work, if it was done now
    public bool Lost;                         // another holder has the claim
}

/// JSON that jsonb refuses: an escaped NUL, or a number that is too large. Compare the body byte by byte.
public sealed class NotForJsonb : Exception { }

/// A malformed or too large body: 400, or 413.
public sealed class BadRequest : Exception
{
    public readonly int Status;
    public BadRequest(int status, string message, Exception cause = null) : base(message, cause) => Status = status;
}

public sealed class Claims
{
    const int Attempts = 5;
    const int Patience = 10;                  // seconds for a statement of ours
    readonly NpgsqlDataSource database;
    readonly string holder = Environment.MachineName + ":" + Process.GetCurrentProcess().Id;

    public Claims(NpgsqlDataSource database) => this.database = database;

    // ---- work in this database ----

    /// Claim, work and answer commit together or not at all. Work may be run again.
    public async Task<Ended> Transactionally(Request request, Func<Claim, Task<Answer>> work)
    {
        var inDoubt = false;                  // a COMMIT has got no answer
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                var ended = await Once();
                // The transaction in doubt may not have ended yet.
                if (!inDoubt || ended.Claim.Outcome != "in_progress") return ended;
                if (attempt >= Attempts) throw new NpgsqlException("unknown whether COMMIT was done");
            }
            catch (Exception e) when (attempt < Attempts && (IsTransient(e) || inDoubt && IsAway(e))) { }
            await Pause(attempt);
        }

        async Task<Ended> Once()
        {
            await using var connection = await database.OpenConnectionAsync();
            await using var transaction = await connection.BeginTransactionAsync(); // disposed, it rolls back
            var claim = await Begin(connection, request, true);
            var ended = new Ended { Claim = claim };
            if (claim.Outcome != "execute") return ended;
            claim.Connection = connection;
            ended.Answer = await work(claim);
            if (!request.Keep(ended.Answer.Status)) return ended;
            // The last statement: it fails (25P02) in a transaction that has failed before. The COMMIT of
            // such a transaction is a ROLLBACK, of which Npgsql says nothing.
            await Complete(connection, request, ended.Answer, null);
            inDoubt = true;
            try { await transaction.CommitAsync(); }
            catch (PostgresException e) when (!IsTransient(e)) { inDoubt = false; throw; }
            return ended;
        }
    }

    // ---- work elsewhere ----

    /// The claim is committed first, kept by heartbeats, and ended by its token.
    public async Task<Ended> Leased(Request request, Func<Claim, Task<Answer>> work)
    {
        Claim claim = null;
        long sent = 0;
        await Again(async () =>
        {
            sent = Stopwatch.GetTimestamp();
            await using var connection = await database.OpenConnectionAsync();
            claim = await Begin(connection, request, false);
        });
        var ended = new Ended { Claim = claim };
        if (claim.Outcome != "execute") return ended;
        await using var heart = new Heartbeat(request.Lease, sent, limit => Extend(claim, limit));
        claim.Lost = heart.Lost;
        var unknown = false;
        claim.Unknown = async (error, reference) =>
        {
            await heart.StopBeating();
            await End(() => EndUnknown(claim, error, reference));
            if (heart.IsLost) throw new OperationCanceledException("the claim is lost");
            unknown = true;
        };
        try { ended.Answer = await work(claim); }
        catch (Exception e)
        {
            await heart.StopBeating();
            if (unknown) throw;
            await End(() => Fail(claim, e.Message, !(e is NothingHappened)));
            ended.Lost = heart.IsLost;
            if (ended.Lost) return ended;
            throw;
        }
        await heart.StopBeating();
        if (unknown) return ended;
        try
        {
            if (request.Keep(ended.Answer.Status)) await End(() => CompleteLeased(claim, ended.Answer));
            else await End(() => Fail(claim, "status " + ended.Answer.Status, true));
        }
        catch (PostgresException e)                  // the answer can't be stored
        {
            await End(() => Fail(claim, e.Message, true));
            throw;
        }
        ended.Lost = heart.IsLost;
        return ended;

        // Tries for as long as the claim is ours: the token makes a repetition harmless.
        async Task End(Func<Task> end)
        {
            for (var attempt = 1; !heart.IsLost; attempt++)
            {
                try { await end(); return; }
                catch (Exception e) when (IsLost(e)) { heart.Lose(); return; }
                catch (Exception e) when (IsAway(e) && !heart.IsLost) { }
                await Pause(attempt);
            }
        }
    }

    /// SQL and the note that it is done, in one transaction. A later attempt finds the note in RecoveryPoint and
    /// State, and has to leave out what is done; `state` is the value of JSON that work returns.
    public Task Step(Claim claim, string point, Func<NpgsqlConnection, Task<string>> work) => Again(async () =>
    {
        await using var connection = await database.OpenConnectionAsync();
        await using var transaction = await connection.BeginTransactionAsync();
        var state = await work(connection);
        await using var command = Command(connection, Statements.Checkpoint, claim.Key, point, state,
            claim.Request.Scope, claim.Request.Principal, claim.Token);
        await command.ExecuteScalarAsync();
        try { await transaction.CommitAsync(); }
        catch (NpgsqlException e) when (!(e is PostgresException))
        {
            // Not to be repeated: it may have been done. The next attempt finds what the record says.
            throw new InvalidOperationException("unknown whether " + point + " was committed", e);
        }
    });

    // ---- messages ----

    /// True if the message was applied now, false if before. Acknowledge it in either case.
    public async Task<bool> Once(string id, string scope, Func<NpgsqlConnection, Task> apply)
    {
        var first = false;
        await Again(async () =>
        {
            await using var connection = await database.OpenConnectionAsync();
            await using var transaction = await connection.BeginTransactionAsync();
            await using var once = Command(connection, Statements.Once, id, scope, "");
            first = (bool)await once.ExecuteScalarAsync();
            if (first) await apply(connection);
            await using var alive = Command(connection, "SELECT"); // 25P02, before COMMIT keeps silent about it
            await alive.ExecuteNonQueryAsync();
            await transaction.CommitAsync();
        });
        return first;
    }

    // ---- the statements ----

    /// A transactional claim has no lease, and has to end before COMMIT.
    async Task<Claim> Begin(NpgsqlConnection connection, Request r, bool transactional)
    {
        await using var command = Command(connection, Statements.Begin, r.Key, r.Json, r.Digest, r.Method, r.Target,
            Array.Empty<string>(), r.Scope, r.Principal, null,
            transactional ? null : (long?)r.Lease.TotalMilliseconds, null, holder, transactional, null);
        try
        {
            await using var row = await command.ExecuteReaderAsync();
            await row.ReadAsync();
            T Get<T>(int i) => row.IsDBNull(i) ? default : row.GetFieldValue<T>(i);
            return new Claim
            {
                Request = r, Outcome = Get<string>(0), Key = Get<string>(1),
                Token = row.IsDBNull(2) ? (long?)null : row.GetFieldValue<long>(2),
                Attempt = Get<int>(3), Status = Get<string>(4),
                StatusCode = row.IsDBNull(5) ? (int?)null : row.GetFieldValue<int>(5),
                Headers = Get<string>(6), Body = Get<byte[]>(7), BodyOmitted = Get<bool>(8), Error = Get<string>(9),
                RecoveryPoint = Get<string>(10), State = Get<string>(11),
                RetryAfter = row.IsDBNull(12) ? (double?)null : row.GetFieldValue<double>(12),
            };
        }
        catch (PostgresException e) when (r.Json != null && Is(e, "22P05", "22003")) { throw new NotForJsonb(); }
        catch (PostgresException e) when (Is(e, "22P02", "22021"))
        {
            throw new BadRequest(400, "The body of the request is not JSON", e);
        }
        catch (PostgresException e) when (Is(e, "54000", "54001"))
        {
            throw new BadRequest(413, "The body of the request is too large", e);
        }
    }

    static async Task Complete(NpgsqlConnection connection, Request r, Answer a, long? token)
    {
        await using var command = Command(connection, Statements.Complete, r.Key, a.Status, a.Body, a.Headers,
            r.Scope, r.Principal, token);
        await command.ExecuteScalarAsync();
    }

    async Task CompleteLeased(Claim claim, Answer answer)
    {
        await using var connection = await database.OpenConnectionAsync();
        await Complete(connection, claim.Request, answer, claim.Token);
    }

    /// Never idem_release. Uncertain: the work may have had its effect, and the policy may forbid to run it again.
    async Task Fail(Claim claim, string error, bool uncertain)
    {
        await using var connection = await database.OpenConnectionAsync();
        await using var command = Command(connection, Statements.Fail, claim.Key, error.Replace("\0", ""),
            claim.Request.Scope, claim.Request.Principal, claim.Token, uncertain);
        await command.ExecuteScalarAsync();
    }

    async Task EndUnknown(Claim claim, string error, string reference)
    {
        await using var connection = await database.OpenConnectionAsync();
        await using var command = Command(connection, Statements.Unknown, claim.Key, error.Replace("\0", ""), reference,
            claim.Request.Scope, claim.Request.Principal, claim.Token);
        await command.ExecuteScalarAsync();
    }

    async Task Extend(Claim claim, CancellationToken limit)
    {
        await using var connection = await database.OpenConnectionAsync(limit);
        await using var command = Command(connection, Statements.Extend, claim.Key, claim.Token,
            claim.Request.Scope, claim.Request.Principal);
        await command.ExecuteScalarAsync(limit);
    }

    /// The server's problem document of an outcome; null where the server can't be asked.
    public async Task<string> Problem(string word)
    {
        try
        {
            await using var connection = await database.OpenConnectionAsync();
            await using var command = Command(connection, Statements.Problem, word);
            return (string)await command.ExecuteScalarAsync();
        }
        catch (Exception e) when (IsAway(e)) { return null; }
    }

    static NpgsqlCommand Command(NpgsqlConnection connection, string sql, params object[] values)
    {
        var command = new NpgsqlCommand(sql, connection) { CommandTimeout = Patience };
        foreach (var value in values) command.Parameters.Add(new NpgsqlParameter { Value = value ?? DBNull.Value });
        return command;
    }

    // ---- what went wrong ----

    static async Task Again(Func<Task> call)
    {
        for (var attempt = 1; ; attempt++)
        {
            try { await call(); return; }
            catch (Exception e) when (attempt < Attempts && IsTransient(e)) { }
            await Pause(attempt);
        }
    }

    static Task Pause(int attempt) => Task.Delay(Math.Min(10 << Math.Min(attempt, 10), 1000));

    /// A repetition from idem_begin on may cure it: conflicts and lost connections. What has no SQLSTATE is one.
    static bool IsTransient(Exception e) => e is PostgresException server
        ? server.SqlState.StartsWith("08") || Is(e, "40001", "40P01", "57P01", "57P02", "57P03", "57P05", "25P03")
        : e is NpgsqlException && !(e.InnerException is TimeoutException);

    /// Not now: the database is away, full, busy, or a standby.
    public static bool IsAway(Exception e) => e is PostgresException server
        ? IsTransient(e) || server.SqlState.StartsWith("53") || Is(e, "25006", "55P03", "57014")
        : e is NpgsqlException || e is TimeoutException || e is OperationCanceledException;

    public static bool IsLost(Exception e) => Is(e, "ID404", "ID409");

    static bool Is(Exception e, params string[] states) => e is PostgresException server && states.Contains(server.SqlState);
}
