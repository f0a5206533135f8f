// A stand-in for Npgsql, which comes from NuGet alone: the part of it that src/ uses, on libpq. Parameters have the types
// that Npgsql gives them, COMMIT of a failed transaction is silent, and late commands are NpgsqlExceptions, as there.
// libpq's variables name the server; the connection string is ignored.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Data.Common;
using System.Globalization;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Npgsql
{
    public class NpgsqlException : DbException
    {
        public NpgsqlException(string message, Exception inner = null) : base(message, inner) { }
    }

    public sealed class PostgresException : NpgsqlException
    {
        public string SqlState { get; }
        public PostgresException(string message, string state) : base(state + ": " + message) => SqlState = state;
    }

    static class Libpq
    {
        const string L = "libpq.so.5";
        [DllImport(L)] public static extern IntPtr PQconnectdb(string conninfo);
        [DllImport(L)] public static extern int PQstatus(IntPtr c);
        [DllImport(L)] public static extern IntPtr PQerrorMessage(IntPtr c);
        [DllImport(L)] public static extern int PQsocket(IntPtr c);
        [DllImport(L)] public static extern int PQtransactionStatus(IntPtr c);
        [DllImport(L)] public static extern void PQfinish(IntPtr c);
        [DllImport(L)] public static extern IntPtr PQexecParams(IntPtr c, byte[] sql, int n, uint[] types, IntPtr[] values, int[] lengths, int[] formats, int binary);
        [DllImport(L)] public static extern int PQresultStatus(IntPtr r);
        [DllImport(L)] public static extern IntPtr PQresultErrorField(IntPtr r, int field);
        [DllImport(L)] public static extern int PQntuples(IntPtr r);
        [DllImport(L)] public static extern int PQnfields(IntPtr r);
        [DllImport(L)] public static extern uint PQftype(IntPtr r, int f);
        [DllImport(L)] public static extern int PQgetisnull(IntPtr r, int row, int f);
        [DllImport(L)] public static extern IntPtr PQgetvalue(IntPtr r, int row, int f);
        [DllImport(L)] public static extern int PQgetlength(IntPtr r, int row, int f);
        [DllImport(L)] public static extern void PQclear(IntPtr r);
        [DllImport("libc")] public static extern int shutdown(int socket, int how);
    }

    public sealed class NpgsqlDataSource
    {
        readonly string conninfo;
        internal readonly ConcurrentBag<IntPtr> Idle = new ConcurrentBag<IntPtr>();
        NpgsqlDataSource(string conninfo) => this.conninfo = conninfo;
        public static NpgsqlDataSource Create(string connectionString) => new NpgsqlDataSource(connectionString);

        public async ValueTask<NpgsqlConnection> OpenConnectionAsync(CancellationToken token = default)
        {
            token.ThrowIfCancellationRequested();
            while (Idle.TryTake(out var idle))
            {
                // Npgsql finds out when a pooled socket has been closed.
                if (Libpq.PQstatus(idle) == 0 && !Readable(Libpq.PQsocket(idle))) return new NpgsqlConnection(this, idle);
                Libpq.PQfinish(idle);
            }
            var c = await Task.Factory.StartNew(() => Libpq.PQconnectdb(conninfo), TaskCreationOptions.LongRunning);
            if (Libpq.PQstatus(c) == 0) return new NpgsqlConnection(this, c);
            var message = Marshal.PtrToStringUTF8(Libpq.PQerrorMessage(c));
            Libpq.PQfinish(c);
            throw new NpgsqlException(message);
        }

        [StructLayout(LayoutKind.Sequential)] struct PollFd { public int fd; public short events, revents; }
        [DllImport("libc")] static extern int poll(ref PollFd fds, ulong n, int timeout);
        static bool Readable(int socket)
        {
            var p = new PollFd { fd = socket, events = 1 };
            return poll(ref p, 1, 0) != 0;
        }
    }

    public sealed class NpgsqlConnection : IAsyncDisposable
    {
        readonly NpgsqlDataSource source;
        internal IntPtr Handle;
        internal NpgsqlConnection(NpgsqlDataSource source, IntPtr handle) => (this.source, Handle) = (source, handle);

        public ValueTask<NpgsqlTransaction> BeginTransactionAsync(CancellationToken token = default) => NpgsqlTransaction.Begin(this);

        public ValueTask DisposeAsync()
        {
            if (Handle == IntPtr.Zero) return default;
            if (Libpq.PQstatus(Handle) == 0 && Libpq.PQtransactionStatus(Handle) == 0) source.Idle.Add(Handle);
            else Libpq.PQfinish(Handle);
            Handle = IntPtr.Zero;
            return default;
        }

        internal async Task<object[][]> Run(string sql, IList<object> values, int timeout, CancellationToken token)
        {
            var socket = Libpq.PQsocket(Handle);
            var run = Task.Factory.StartNew(() => RunNow(sql, values), TaskCreationOptions.LongRunning);
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(token);
            limit.CancelAfter(timeout * 1000);
            var late = false;
            using (limit.Token.Register(() => { late = true; Libpq.shutdown(socket, 2); }))
            {
                try { return await run; }
                catch (NpgsqlException e) when (late && !(e is PostgresException))
                {
                    if (token.IsCancellationRequested) throw new OperationCanceledException(token);
                    throw new NpgsqlException("timeout", new TimeoutException());
                }
            }
        }

        object[][] RunNow(string sql, IList<object> values)
        {
            var n = values.Count;
            uint[] types = new uint[n];
            IntPtr[] pointers = new IntPtr[n];
            int[] lengths = new int[n], formats = new int[n];
            for (var i = 0; i < n; i++)
            {
                byte[] bytes;
                switch (values[i])
                {
                    case DBNull _: continue;                        // of an unknown type
                    case string s: types[i] = 25; bytes = Encoding.UTF8.GetBytes(s); break;
                    case byte[] b: types[i] = 17; bytes = b; break;
                    case bool v: types[i] = 16; bytes = BitConverter.GetBytes(v); break;
                    case int v: types[i] = 23; bytes = BitConverter.GetBytes(v).Reverse().ToArray(); break;
                    case long v: types[i] = 20; bytes = BitConverter.GetBytes(v).Reverse().ToArray(); break;
                    case string[] a when a.Length == 0: types[i] = 1009; bytes = new byte[] { 0,0,0,0, 0,0,0,0, 0,0,0,25 }; break;
                    default: throw new InvalidCastException(values[i].GetType().Name);
                }
                formats[i] = 1;
                lengths[i] = bytes.Length;
                pointers[i] = Marshal.AllocHGlobal(bytes.Length + 1);
                Marshal.Copy(bytes, 0, pointers[i], bytes.Length);
            }
            var r = Libpq.PQexecParams(Handle, Encoding.UTF8.GetBytes(sql + "\0"), n, types, pointers, lengths, formats, 1);
            foreach (var p in pointers) Marshal.FreeHGlobal(p);
            try
            {
                var status = Libpq.PQresultStatus(r);
                if (status != 1 && status != 2)
                {
                    var state = Marshal.PtrToStringUTF8(Libpq.PQresultErrorField(r, 'C'));
                    var message = Marshal.PtrToStringUTF8(Libpq.PQresultErrorField(r, 'M')) ?? Marshal.PtrToStringUTF8(Libpq.PQerrorMessage(Handle));
                    throw string.IsNullOrEmpty(state) ? new NpgsqlException(message) : new PostgresException(message, state);
                }
                return Enumerable.Range(0, Libpq.PQntuples(r)).Select(row =>
                    Enumerable.Range(0, Libpq.PQnfields(r)).Select(f => Value(r, row, f)).ToArray()).ToArray();
            }
            finally { Libpq.PQclear(r); }
        }

        static object Value(IntPtr r, int row, int f)
        {
            if (Libpq.PQgetisnull(r, row, f) == 1) return DBNull.Value;
            var bytes = new byte[Libpq.PQgetlength(r, row, f)];
            Marshal.Copy(Libpq.PQgetvalue(r, row, f), bytes, 0, bytes.Length);
            switch (Libpq.PQftype(r, f))
            {
                case 16: return bytes[0] == 1;
                case 17: return bytes;
                case 20: return BitConverter.ToInt64(bytes.Reverse().ToArray());
                case 23: return BitConverter.ToInt32(bytes.Reverse().ToArray());
                case 701: return BitConverter.ToDouble(bytes.Reverse().ToArray());
                case 3802: return Encoding.UTF8.GetString(bytes, 1, bytes.Length - 1);
                case 25: return Encoding.UTF8.GetString(bytes);
                default: return bytes;
            }
        }
    }

    public sealed class NpgsqlTransaction : IAsyncDisposable
    {
        NpgsqlConnection connection;
        internal static async ValueTask<NpgsqlTransaction> Begin(NpgsqlConnection connection)
        {
            await connection.Run("BEGIN", Array.Empty<object>(), 10, default);
            return new NpgsqlTransaction { connection = connection };
        }
        public async Task CommitAsync(CancellationToken token = default)
        {
            var ending = connection;
            connection = null;
            await ending.Run("COMMIT", Array.Empty<object>(), Patience, token);
        }
        internal static readonly int Patience = 2;
        public async ValueTask DisposeAsync()
        {
            if (connection == null || Libpq.PQstatus(connection.Handle) != 0) return;
            try { await connection.Run("ROLLBACK", Array.Empty<object>(), Patience, default); } catch (Exception) { }
        }
    }

    public sealed class NpgsqlParameter { public object Value { get; set; } }

    public sealed class NpgsqlCommand : IAsyncDisposable
    {
        readonly string sql;
        readonly NpgsqlConnection connection;
        public NpgsqlCommand(string sql, NpgsqlConnection connection) => (this.sql, this.connection) = (sql, connection);
        public int CommandTimeout { get; set; } = 30;
        public List<NpgsqlParameter> Parameters { get; } = new List<NpgsqlParameter>();
        Task<object[][]> Run(CancellationToken token) => connection.Run(sql, Parameters.Select(p => p.Value).ToList(), CommandTimeout, token);
        public async Task<NpgsqlDataReader> ExecuteReaderAsync(CancellationToken token = default) => new NpgsqlDataReader(await Run(token));
        public async Task<object> ExecuteScalarAsync(CancellationToken token = default)
        {
            var rows = await Run(token);
            return rows.Length == 0 ? null : rows[0][0];
        }
        public async Task<int> ExecuteNonQueryAsync(CancellationToken token = default) { await Run(token); return 0; }
        public ValueTask DisposeAsync() => default;
    }

    public sealed class NpgsqlDataReader : IAsyncDisposable
    {
        readonly object[][] rows;
        int row = -1;
        internal NpgsqlDataReader(object[][] rows) => this.rows = rows;
        public Task<bool> ReadAsync(CancellationToken token = default) => Task.FromResult(++row < rows.Length);
        public bool IsDBNull(int i) => rows[row][i] is DBNull;
        public T GetFieldValue<T>(int i) => (T)rows[row][i];
        public ValueTask DisposeAsync() => default;
    }
}
