using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.Extensions.Primitives;

public sealed class Route
{
    public string Scope;                                     // the operation: POST /payments
    public Func<HttpContext, string> Principal;              // from the authentication; null or empty: 401
    public TimeSpan Lease = TimeSpan.FromSeconds(30);
    public Func<int, bool> Keep = Request.KeepByDefault;     // by status: what is stored and replayed
    public int MaxRequestBytes = 1 << 20, MaxAnswerBytes = 1 << 20;
}

public static class Routes
{
    public static RequestDelegate Transactional(this Claims claims, Route route, RequestDelegate handler) =>
        context => new Exchange(claims, route, context, handler).Serve(claims.Transactionally);

    public static RequestDelegate Leased(this Claims claims, Route route, RequestDelegate handler) =>
        context => new Exchange(claims, route, context, handler).Serve(claims.Leased);

    /// For endpoints that bind parameters, and controllers: app.MapPost(...).Idempotent(claims.Transactional, route)
    public static T Idempotent<T>(this T endpoint, Func<Route, RequestDelegate, RequestDelegate> kind, Route route)
        where T : IEndpointConventionBuilder
    {
        endpoint.Add(builder =>
        {
            var handler = builder.RequestDelegate;
            builder.RequestDelegate = kind(route, handler);
        });
        return endpoint;
    }
}

/// One request and its answer.
sealed class Exchange
{
    // A String of RFC 9651, whose parameters say nothing, or a bare value. Nothing is decoded but \" and \\.
    const string Text = @"""(?:[\x20\x21\x23-\x5B\x5D-\x7E]|\\[""\\])*""";
    const string Item = Text + @"|:[A-Za-z0-9+/]*=*:|\?[01]|@-?[0-9]{1,15}|%""(?:[\x20\x21\x23\x24\x26-\x7E]|%[0-9a-f]{2})*"""
        + @"|-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*";
    static readonly Regex Quoted = new Regex(@"\A(" + Text + @")(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:" + Item + @"))?)*\z");
    static readonly Regex Bare = new Regex(@"\A[\x21\x23-\x2B\x2D-\x3A\x3C-\x5B\x5D-\x7E]+\z");
    // Of one hop, of one client, or of this moment.
    static readonly HashSet<string> NotStored = new HashSet<string>(StringComparer.OrdinalIgnoreCase) {
        "Set-Cookie", "Date", "Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding", "Trailer", "Upgrade",
        "Proxy-Authenticate", "Proxy-Connection" };

    readonly Claims claims;
    readonly Route route;
    readonly HttpContext context;
    readonly RequestDelegate handler;
    readonly KeyValuePair<string, StringValues>[] before;    // fields that outer middlewares have set
    byte[] body;

    public Exchange(Claims claims, Route route, HttpContext context, RequestDelegate handler)
    {
        (this.claims, this.route, this.context, this.handler) = (claims, route, context, handler);
        before = context.Response.Headers.ToArray();
    }

    public async Task Serve(Func<Request, Func<Claim, Task<Answer>>, Task<Ended>> run)
    {
        var principal = route.Principal(context);            // before anything of the body is read
        if (string.IsNullOrEmpty(principal)) { await Refuse(401, "unauthorized", "The request is not authenticated"); return; }
        var fields = context.Request.Headers["Idempotency-Key"];
        if (fields.Count == 0) { await Refuse("missing_key"); return; }
        var key = fields.Count == 1 ? KeyOf(fields[0]) : null;
        if (key == null) { await Refuse("bad_key"); return; }
        if (context.Request.Headers["Content-Encoding"].Any(coding => coding != "identity"))
        {
            await Refuse(415, "content_encoding", "The body of the request is in an encoding that is not understood");
            return;
        }
        body = await ReadBody();
        if (body == null) { await Refuse(413, "body_too_large", "The body of the request is too large"); return; }
        Ended ended;
        try
        {
            try { ended = await run(RequestOf(key, principal, true), Handle); }
            catch (NotForJsonb) { ended = await run(RequestOf(key, principal, false), Handle); }
        }
        catch (BadRequest e) { await Refuse(e.Status, e.Status == 400 ? "bad_json" : "body_too_large", e.Message); return; }
        catch (Exception e) when (Claims.IsAway(e))
        {
            await Refuse(503, "unavailable", "The request can't be executed now; it may be sent again", 1);
            return;
        }
        if (ended.Lost) await Refuse("in_progress", 1);         // the new holder answers
        else if (ended.Answer != null) await SendBody(ended.Answer.Body); // its fields stand in the response
        else if (ended.Claim.Outcome != "replay") await Refuse(ended.Claim.Outcome, ended.Claim.RetryAfter);
        else await Replay(ended.Claim);
    }

    static string KeyOf(string field)
    {
        var quoted = Quoted.Match(field);
        var key = quoted.Success ? Regex.Replace(quoted.Groups[1].Value[1..^1], @"\\(.)", "$1") : Bare.IsMatch(field) ? field : "";
        return key.Length >= 1 && key.Length <= 255 && key.Trim(' ') != "" ? key : null;
    }

    // At most route.MaxRequestBytes; null if there are more.
    async Task<byte[]> ReadBody()
    {
        if (context.Request.ContentLength > route.MaxRequestBytes) return null;
        var all = new MemoryStream();
        var part = new byte[16384];
        for (int n; (n = await context.Request.Body.ReadAsync(part, 0, part.Length)) > 0;)
        {
            if (all.Length + n > route.MaxRequestBytes) return null;
            all.Write(part, 0, n);
        }
        return all.ToArray();
    }

    // A request is its method, its target with the query string, and its body: JSON as such, if that is asked
    // for, and anything else byte by byte.
    Request RequestOf(string key, string principal, bool asJson)
    {
        var request = new Request
        {
            Key = key, Scope = route.Scope, Principal = principal, Lease = route.Lease, Keep = route.Keep,
            Method = context.Request.Method,
            Target = context.Features.Get<IHttpRequestFeature>().RawTarget,
        };
        var type = (context.Request.ContentType ?? "").Split(';')[0].Trim().ToLowerInvariant();
        if (asJson && (type == "application/json" || type.EndsWith("+json")))
        {
            try { request.Json = new UTF8Encoding(false, true).GetString(body); }
            catch (ArgumentException e) { throw new BadRequest(400, "The body of the request is not JSON", e); }
            return request;
        }
        using var hash = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
        hash.AppendData(Encoding.ASCII.GetBytes("idempotency fingerprint 1\n"));
        foreach (var part in new[] { request.Method, request.Target, type }.Select(text => Encoding.UTF8.GetBytes(text)).Append(body))
        {
            hash.AppendData(Encoding.ASCII.GetBytes(part.Length + ":"));
            hash.AppendData(part);
            hash.AppendData(new[] { (byte)'\n' });
        }
        request.Digest = hash.GetHashAndReset();
        return request;
    }

    // Runs the handler, maybe not for the first time, and catches its answer.
    async Task<Answer> Handle(Claim claim)
    {
        var response = context.Response;
        var wire = context.Features.Get<IHttpResponseBodyFeature>();
        var written = new MemoryStream();
        StartAfresh();
        context.Features.Set(claim);
        context.Request.Body = new MemoryStream(body, false);
        context.Features.Set<IHttpResponseBodyFeature>(new StreamResponseBodyFeature(written));
        try
        {
            await handler(context);
            await response.BodyWriter.FlushAsync();
        }
        finally { context.Features.Set(wire); }
        if (written.Length > route.MaxAnswerBytes) throw new InvalidOperationException("the answer is too large to be kept");
        var headers = response.Headers.Where(field => !NotStored.Contains(field.Key)).ToDictionary(
            field => field.Key, field => field.Value.Count == 1 ? (object)field.Value[0] : field.Value.ToArray());
        return new Answer { Status = response.StatusCode, Headers = JsonSerializer.Serialize(headers), Body = written.ToArray() };
    }

    void StartAfresh()
    {
        context.Response.StatusCode = 200;
        context.Response.Headers.Clear();
        foreach (var field in before) context.Response.Headers[field.Key] = field.Value;
    }

    async Task Replay(Claim claim)
    {
        StartAfresh();
        context.Response.Headers["Idempotent-Replayed"] = "true";
        if (claim.Status == "failed" && claim.StatusCode == null) { await Send(await ProblemOf("failed")); return; }
        context.Response.StatusCode = claim.StatusCode ?? 200;
        using var stored = JsonDocument.Parse(claim.Headers ?? "{}");
        foreach (var field in stored.RootElement.EnumerateObject())
        {
            context.Response.Headers[field.Name] = field.Value.ValueKind == JsonValueKind.Array
                ? new StringValues(field.Value.EnumerateArray().Select(value => value.GetString()).ToArray())
                : new StringValues(field.Value.GetString());
        }
        // No body, and no empty JSON either: an answer that says why.
        if (claim.BodyOmitted) context.Response.Headers["Idempotent-Body"] = "omitted";
        await SendBody(claim.Body ?? Array.Empty<byte>());
    }

    async Task Refuse(string word, double? retryAfter = null)
    {
        StartAfresh();
        await Send(await ProblemOf(word), retryAfter);
    }

    Task Refuse(int status, string word, string title, double? retryAfter = null)
    {
        StartAfresh();
        return Send(Problem(status, word, title), retryAfter);
    }

    async Task<Dictionary<string, object>> ProblemOf(string word)
    {
        var document = await claims.Problem(word);
        if (document != null) return JsonSerializer.Deserialize<Dictionary<string, object>>(document);
        return Problem(word == "missing_key" || word == "bad_key" ? 400 : 503, word, "The request can't be executed now");
    }

    static Dictionary<string, object> Problem(int status, string word, string title) => new Dictionary<string, object> {
        ["type"] = "/problems/idempotency/" + word.Replace('_', '-'), ["title"] = title, ["status"] = status };

    Task Send(Dictionary<string, object> problem, double? retryAfter = null)
    {
        if (retryAfter != null)
        {
            problem["retry_after"] = (int)Math.Ceiling(retryAfter.Value);
            context.Response.Headers["Retry-After"] = problem["retry_after"].ToString();
        }
        context.Response.StatusCode = int.Parse(problem["status"].ToString());
        context.Response.ContentType = "application/problem+json";
        return SendBody(JsonSerializer.SerializeToUtf8Bytes(problem));
    }

    async Task SendBody(byte[] bytes)
    {
        if (context.Response.StatusCode != 204 && context.Response.StatusCode != 304) context.Response.ContentLength = bytes.Length;
        if (bytes.Length > 0) await context.Response.Body.WriteAsync(bytes, 0, bytes.Length);
    }
}
