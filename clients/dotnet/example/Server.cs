// The server of the conformance suite, with the options that this client has.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Npgsql;

// Stands for another company's service.
static class Gateway
{
    public static Task<string> Charge(string key, CancellationToken stop) => Task.FromResult(key);
}

static class Server
{
    [System.Runtime.InteropServices.DllImport("libc")] static extern void _exit(int status);
    static readonly NpgsqlDataSource own = NpgsqlDataSource.Create("connect_timeout=5");
    static readonly Claims claims = new Claims(NpgsqlDataSource.Create("connect_timeout=2"));
    static readonly ConcurrentDictionary<string, int> runs = new ConcurrentDictionary<string, int>();

    static string Tenant(HttpContext context)
    {
        var fields = context.Request.Headers["Authorization"];
        if (fields.Count != 1 || !fields[0].StartsWith("Bearer ", StringComparison.OrdinalIgnoreCase)) return null;
        return fields[0].Substring(7).Trim();
    }

    static async Task Run(NpgsqlConnection connection, string sql, params object[] values)
    {
        await using var command = new NpgsqlCommand(sql, connection);
        foreach (var value in values) command.Parameters.Add(new NpgsqlParameter { Value = value ?? DBNull.Value });
        await command.ExecuteNonQueryAsync();
    }

    static async Task Effect(Claim claim, string note, NpgsqlConnection connection) =>
        await Run(connection, "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)", claim.Request.Principal, claim.Key, note);

    static async Task EffectOf(Claim claim, string note)
    {
        if (claim.Connection != null) { await Effect(claim, note, claim.Connection); return; }
        if (claim.RecoveryPoint == "effect") return;
        await claims.Step(claim, "effect", async connection => { await Effect(claim, note, connection); return "{}"; });
    }

    // The hooks of other clients: here the handler tells of itself.
    static async Task Told(Claim claim, string name, string outcome)
    {
        await using var connection = await own.OpenConnectionAsync();
        await Run(connection, "INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, 1, $4)",
            name, claim.Request.Scope, claim.Key, outcome);
    }

    static async Task Handle(HttpContext context)
    {
        var claim = context.Features.Get<Claim>();
        await Told(claim, "execute", "execute");
        var body = new System.IO.MemoryStream();
        await context.Request.Body.CopyToAsync(body);
        Dictionary<string, JsonElement> d = null;
        if ((context.Request.ContentType ?? "").Contains("json"))
        {
            var deep = new JsonSerializerOptions { MaxDepth = 2000 };
            try { d = JsonSerializer.Deserialize<Dictionary<string, JsonElement>>(body.ToArray(), deep); }
            catch (JsonException) { }
        }
        if (d == null)
        {
            await EffectOf(claim, "raw");
            await context.Response.Body.WriteAsync(body.ToArray());
            return;
        }
        if (d.TryGetValue("gate", out var gate))
        {
            await using var c = await own.OpenConnectionAsync();
            await Run(c, "SELECT pg_advisory_lock_shared($1)", gate.GetInt64());
            await Run(c, "SELECT pg_advisory_unlock_shared($1)", gate.GetInt64());
        }
        if (d.TryGetValue("effect", out var effect)) await EffectOf(claim, effect.GetString());
        if (d.TryGetValue("unknown", out var unknown)) await claim.Unknown(unknown[0].GetString(), unknown[1].GetString());
        if (d.ContainsKey("commit")) await Run(claim.Connection, "COMMIT");
        if (d.ContainsKey("hide_error"))
        {
            try { await Run(claim.Connection, "SELECT 1/0"); } catch (PostgresException) { }
        }
        if (d.TryGetValue("serialization_failures", out var failures) &&
            runs.AddOrUpdate(claim.Request.Principal + claim.Key, 1, (_, n) => n + 1) <= failures.GetInt32())
            await Run(claim.Connection,
                "DO $$BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END$$");
        if (d.TryGetValue("hang", out var hang))
        {
            claim.Lost.Register(async () => await Told(claim, "lease_lost", "lost"));
            try { await Task.Delay(-1, claim.Lost); } catch (OperationCanceledException) { }
            await using var c = await own.OpenConnectionAsync();
            await Effect(claim, "lost", c);
        }
        if (d.ContainsKey("nothing_happened")) throw new NothingHappened("nothing happened");
        if (d.ContainsKey("throw")) throw new InvalidOperationException("told to");
        if (d.ContainsKey("exit")) _exit(3);
        context.Response.StatusCode = d.TryGetValue("status", out var status) ? status.GetInt32() : 201;
        if (d.TryGetValue("headers", out var headers))
            foreach (var pair in headers.EnumerateArray())
                context.Response.Headers.Append(pair[0].GetString(), pair[1].GetString());
        var repeat = d.TryGetValue("repeat", out var times) ? times.GetInt32() : 1;
        if (d.TryGetValue("body", out var text))
            for (var i = 0; i < repeat; i++) await context.Response.Body.WriteAsync(text.GetBytesFromBase64());
    }

    static void Main() =>
        new WebHostBuilder()
            .UseKestrel(options =>
            {
                options.AddServerHeader = false;
                options.Listen(System.Net.IPAddress.Loopback, int.Parse(Environment.GetEnvironmentVariable("PORT")));
            })
            .ConfigureLogging(l => l.AddConsole().SetMinimumLevel(LogLevel.Warning))
            .ConfigureServices(s => Microsoft.Extensions.DependencyInjection.RoutingServiceCollectionExtensions.AddRouting(s))
            .Configure(app =>
            {
                app.UseRouting();
                app.UseEndpoints(e =>
                {
                    Route R(string path) => new Route { Scope = "POST " + path, Principal = Tenant };
                    e.MapPost("/transactional", claims.Transactional(R("/transactional"), Handle));
                    e.MapPost("/streamed", Handle).Idempotent(claims.Transactional, R("/streamed"));
                    foreach (var path in new[] { "/leased", "/uncertain" })
                    {
                        var leased = R(path);
                        leased.Lease = TimeSpan.FromSeconds(2);
                        e.MapPost(path, claims.Leased(leased, Handle));
                    }
                    foreach (var path in new[] { "/omit", "/unprotected", "/pass", "/generate", "/derive" })
                        e.MapPost(path, claims.Transactional(R(path), Handle));
                    var small = R("/small");
                    small.MaxRequestBytes = small.MaxAnswerBytes = 1000;
                    e.MapPost("/small", claims.Transactional(small, Handle));
                    e.MapGet("/health", c => c.Response.WriteAsync("ok\n"));
                });
                var lifetime = (IHostApplicationLifetime)app.ApplicationServices.GetService(typeof(IHostApplicationLifetime));
                lifetime.ApplicationStarted.Register(() => { Console.Write("ready\n"); Console.Out.Flush(); });
            })
            .UseShutdownTimeout(TimeSpan.FromMilliseconds(300))
            .Build().Run();
}
