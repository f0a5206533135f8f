using System;
using System.Text.Json;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Routing;
using Npgsql;

public sealed class Payments
{
    readonly Claims claims = new Claims(NpgsqlDataSource.Create("Host=localhost;Database=shop;Timeout=5;Command Timeout=10"));

    public void Map(IEndpointRouteBuilder app)
    {
        app.MapPost("/payments", claims.Transactional(new Route { Scope = "POST /payments", Principal = Tenant }, Pay));
        app.MapPost("/transfers", claims.Leased(new Route { Scope = "POST /transfers", Principal = Tenant }, Transfer));
    }

    static string Tenant(HttpContext context) => context.User.Identity.IsAuthenticated ? context.User.Identity.Name : null;

    static async Task Pay(HttpContext context)
    {
        var amount = (await JsonDocument.ParseAsync(context.Request.Body)).RootElement.GetProperty("amount").GetInt32();
        var claim = context.Features.Get<Claim>();
        await using var insert = new NpgsqlCommand("INSERT INTO payment (amount) VALUES ($1)", claim.Connection);
        insert.Parameters.Add(new NpgsqlParameter { Value = amount });
        await insert.ExecuteNonQueryAsync();
        context.Response.StatusCode = 201;
        await context.Response.WriteAsync("paid");
    }

    async Task Transfer(HttpContext context)
    {
        var claim = context.Features.Get<Claim>();
        var key = $"{claim.Request.Scope}:{claim.Request.Principal}:{claim.Key}";  // the same after a crash
        var charge = await Gateway.Charge(key, claim.Lost);
        if (claim.RecoveryPoint != "booked") await claims.Step(claim, "booked", async connection =>
        {
            await using var book = new NpgsqlCommand("INSERT INTO booking (charge) VALUES ($1)", connection);
            book.Parameters.Add(new NpgsqlParameter { Value = charge });
            await book.ExecuteNonQueryAsync();
            return "{}";
        });
        await context.Response.WriteAsync(charge);
    }
}
