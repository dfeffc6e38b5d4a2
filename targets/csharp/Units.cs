using System;
using System.Linq;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

/// Measures tasks and threads by the protocol of docs/targets.md: the gated workloads.
static class Units
{
    private const int WarmupUnits = 100;

    /// The number of the unit that yielded last.
    private static volatile int turn;

    private struct Round
    {
        public long Create;
        public long Run;
        public long Made;
    }

    /// Starts a thread, or fails in words.
    private static Thread Start(ThreadStart work, int number, int units)
    {
        var thread = new Thread(work);
        try
        {
            thread.Start();
        }
        catch (Exception error) when (error is OutOfMemoryException || error is ThreadStartException)
        {
            throw new Failed(
                "thread " + number + " of " + units + " could not be started: " + error.Message,
                "raise the limits on processes (ulimit -u, pids.max), or use --units");
        }
        return thread;
    }

    private static Round Threads(int units, int switches, Action alive)
    {
        var born = new CountdownEvent(units);
        // Without spinning, which would take the core from those that are not born yet.
        var gate = new ManualResetEventSlim(false, 0);
        var threads = new Thread[units];
        var round = new Round();
        long made = 0;
        var start = Orders.Now();
        for (var i = 0; i < units; i++)
        {
            var number = i + 1;
            threads[i] = Start(() =>
            {
                var switched = gate.IsSet ? 0 : 1;
                born.Signal();
                gate.Wait();
                for (var s = 1; s < switches; s++)
                {
                    turn = number;
                    Thread.Yield();
                    if (turn != number)
                    {
                        switched++;
                    }
                }
                Interlocked.Add(ref made, switched);
            }, number, units);
        }
        born.Wait();
        round.Create = Orders.Since(start);
        alive();
        start = Orders.Now();
        gate.Set();
        foreach (var thread in threads)
        {
            thread.Join();
        }
        round.Run = Orders.Since(start);
        round.Made = made;
        return round;
    }

    private static async Task<long> Unit(int number, int switches, CountdownEvent born, Task gate)
    {
        long switched = gate.IsCompleted ? 0 : 1;
        born.Signal();
        await gate;
        for (var s = 1; s < switches; s++)
        {
            turn = number;
            await Task.Yield();
            if (turn != number)
            {
                switched++;
            }
        }
        return switched;
    }

    private static Round Tasks(int units, int switches, Action alive)
    {
        var born = new CountdownEvent(units);
        // Otherwise the task that opens the gate would run all that wait there, one within the other.
        var gate = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        var tasks = new Task<long>[units];
        var round = new Round();
        var start = Orders.Now();
        for (var i = 0; i < units; i++)
        {
            var number = i + 1;
            tasks[i] = Task.Run(() => Unit(number, switches, born, gate.Task));
        }
        born.Wait();
        round.Create = Orders.Since(start);
        alive();
        start = Orders.Now();
        // By a thread of the pool: this one would be interrupted by the first task that it wakes, on one core, and that
        // would be through before the others are woken.
        Task.Run(() => gate.SetResult(true));
        Task.WaitAll(tasks);
        round.Run = Orders.Since(start);
        round.Made = tasks.Sum(task => task.Result);
        return round;
    }

    private static string Take(Orders orders)
    {
        Func<int, int, Action, Round> run;
        switch (orders.Word("unit", ""))
        {
            case "thread": run = Threads; break;
            case "task": run = Tasks; break;
            default: throw new Failed("there is no unit '" + orders.Word("unit", "") + "'; the units are task and thread");
        }
        int units = orders.Number("units", 1), switches = orders.Number("switches", 1);
        int rounds = orders.Number("rounds", 1), warmup = orders.Number("warmup", 0);
        var cores = orders.Number("cores", 0);
        if (cores > 0)
        {
            // Two of the pool's threads on one core would each take the task that it has just put back.
            ThreadPool.SetMinThreads(cores, cores);
            ThreadPool.SetMaxThreads(cores, cores);
        }
        long warming = 0;
        for (var i = 0; i < warmup; i++)
        {
            var round = run(Math.Min(units, WarmupUnits), switches, () => { });
            warming += round.Create + round.Run;
        }

        orders.Phase("base");
        var before = Orders.Collections();
        var times = new StringBuilder();
        long made = 0;
        for (var i = 0; i < rounds; i++)
        {
            var first = i == 0;
            var round = run(units, switches, first ? () => orders.Phase("alive") : new Action(() => { }));
            times.Append(first ? "" : ",");
            times.Append("{\"create_ns\":" + round.Create + ",\"run_ns\":" + round.Run + "}");
            made += round.Made;
            if (first)
            {
                orders.Phase("done");
            }
        }
        var line = new StringBuilder("\"units\":" + units);
        line.Append(",\"switches_asked\":" + (long)units * switches * rounds);
        line.Append(",\"switches_made\":" + made);
        line.Append(",\"rounds\":[" + times + "]");
        line.Append(",\"gc\":{\"on\":true,\"collections\":" + (Orders.Collections() - before) + "}");
        if (warmup > 0)
        {
            line.Append(",\"warmup\":{\"rounds\":" + warmup + ",\"ns\":" + warming + "}");
        }
        return line.ToString();
    }

    public static void Main(string[] arguments)
    {
        Orders.Answer(arguments, Take);
    }
}
