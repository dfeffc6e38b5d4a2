using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;

/// Switch and allocation of C#, by hand: nanoseconds on standard output.
static class ByHand
{
    private static double Run(bool tasks, bool switching, int count)
    {
        int units = switching ? 2 : count, yields = switching ? count / 2 : 1;
        var born = new CountdownEvent(units);
        var gate = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        var door = new ManualResetEventSlim(false, 0);
        var all = new List<Task>();
        var threads = new List<Thread>();
        var start = Stopwatch.GetTimestamp();
        for (var i = 0; i < units; i++)
        {
            if (tasks)
            {
                all.Add(Task.Run(async () =>
                {
                    born.Signal();
                    await gate.Task;
                    for (var y = 0; y < yields; y++)
                    {
                        await Task.Yield();
                    }
                }));
                continue;
            }
            var thread = new Thread(() =>
            {
                born.Signal();
                door.Wait();
                for (var y = 0; y < yields; y++)
                {
                    Thread.Yield();
                }
            });
            thread.Start();
            threads.Add(thread);
        }
        born.Wait();
        if (switching)
        {
            start = Stopwatch.GetTimestamp();
        }
        gate.SetResult(true);
        door.Set();
        Task.WaitAll(all.ToArray());
        threads.ForEach(thread => thread.Join());
        return (Stopwatch.GetTimestamp() - start) * (1e9 / Stopwatch.Frequency) / count;
    }

    public static void Main(string[] arguments)
    {
        bool switching = arguments[0] == "switch", tasks = arguments[1] == "task";
        if (switching)
        {
            ThreadPool.SetMinThreads(1, 1);
            ThreadPool.SetMaxThreads(1, 1);
        }
        for (var i = 0; i < (tasks ? 50 : 20); i++)
        {
            Run(tasks, switching, 100);
        }
        Console.WriteLine(Run(tasks, switching, int.Parse(arguments[2])).ToString(System.Globalization.CultureInfo.InvariantCulture));
    }
}
