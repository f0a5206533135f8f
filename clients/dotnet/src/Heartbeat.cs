using System;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;

/// Keeps a lease: a beat at a third of it, and after one that failed again after a tenth. A failed beat says
/// nothing about who owns the claim. It is lost when the server says so, or when the lease may have ended,
/// counted by a monotonic clock from the moment at which the last successful request was sent.
public sealed class Heartbeat : IAsyncDisposable
{
    readonly TimeSpan lease;
    readonly Func<CancellationToken, Task> extend;
    readonly CancellationTokenSource lost = new CancellationTokenSource();
    readonly CancellationTokenSource beating = new CancellationTokenSource();
    readonly CancellationTokenSource watching = new CancellationTokenSource();
    readonly Task beats, watch;
    long granted;                             // by Stopwatch: when the last successful request was sent

    public Heartbeat(TimeSpan lease, long sent, Func<CancellationToken, Task> extend)
    {
        (this.lease, this.extend, granted) = (lease, extend, sent);
        Lost = lost.Token;
        beats = Task.Run(Beat);
        watch = Task.Run(Watch);
    }

    public CancellationToken Lost { get; }
    public bool IsLost => lost.IsCancellationRequested;
    public void Lose() => lost.Cancel();

    /// The work has ended. The lease is still watched until its answer is stored.
    public async Task StopBeating() { beating.Cancel(); await beats; }

    public async ValueTask DisposeAsync()
    {
        await StopBeating();
        watching.Cancel();
        await watch;
    }

    async Task Beat()
    {
        var pause = lease / 3;
        while (await Slept(pause, beating.Token) && !IsLost)
        {
            var sent = Stopwatch.GetTimestamp();
            try
            {
                await Limited(lease / 6);
                Interlocked.Exchange(ref granted, sent);
                pause = lease / 3 - Since(sent);
            }
            catch (Exception e) when (Claims.IsLost(e)) { Lose(); }
            catch (Exception) { pause = lease / 10; }
        }
    }

    // A beat that hangs leaves time for others, whatever the driver makes of the token.
    async Task Limited(TimeSpan time)
    {
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(beating.Token);
        limit.CancelAfter(time);
        var beat = extend(limit.Token);
        if (await Task.WhenAny(beat, Task.Delay(time, beating.Token)) != beat) throw new TimeoutException();
        await beat;
    }

    async Task Watch()
    {
        for (;;)
        {
            var left = lease - Since(Interlocked.Read(ref granted));
            if (left <= TimeSpan.Zero) { Lose(); return; }
            if (!await Slept(left, watching.Token)) return;
        }
    }

    static async Task<bool> Slept(TimeSpan time, CancellationToken end)
    {
        try { await Task.Delay(time > TimeSpan.Zero ? time : TimeSpan.Zero, end); return true; }
        catch (OperationCanceledException) { return false; }
    }

    static TimeSpan Since(long sent) => TimeSpan.FromSeconds((Stopwatch.GetTimestamp() - sent) / (double)Stopwatch.Frequency);
}
