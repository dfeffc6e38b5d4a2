using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.InteropServices;
using System.Text;

/// No sample can be taken; what would help, where that is known.
sealed class Failed : Exception
{
    public readonly string Advice;

    public Failed(string message, string advice = null) : base(message)
    {
        Advice = advice;
    }
}

/// What the programs of this target share: orders in, phases, and one line out, as docs/targets.md has it.
sealed class Orders
{
    private readonly Dictionary<string, string> words = new Dictionary<string, string>();

    private Orders(string[] arguments)
    {
        foreach (var argument in arguments)
        {
            var at = argument.IndexOf('=');
            words[at < 0 ? argument : argument.Substring(0, at)] = at < 0 ? "" : argument.Substring(at + 1);
        }
    }

    public string Word(string key, string missing)
    {
        return words.TryGetValue(key, out var word) ? word : missing;
    }

    public int Number(string key, int missing)
    {
        return int.Parse(Word(key, missing.ToString()));
    }

    public bool IsSet(string key)
    {
        return Word(key, "0") == "1";
    }

    /// Stops, if that was ordered, until the lab has looked at this process.
    public void Phase(string name)
    {
        if (IsSet("phases"))
        {
            Console.WriteLine("{\"phase\":\"" + name + "\"}");
            Console.Out.Flush();
            Console.In.ReadLine();
        }
    }

    /// Nanoseconds since this moment of the monotonic clock.
    public static long Since(long start)
    {
        return (long)((Stopwatch.GetTimestamp() - start) * (1e9 / Stopwatch.Frequency));
    }

    public static long Now()
    {
        return Stopwatch.GetTimestamp();
    }

    /// Collections so far. A collection of a generation is one of the younger ones, too.
    public static int Collections()
    {
        return GC.CollectionCount(0);
    }

    /// Takes a sample, prints it, or why there is none, and ends the process.
    public static void Answer(string[] arguments, Func<Orders, string> take)
    {
        string line;
        var code = 0;
        try
        {
            line = "{\"sample\":{" + take(new Orders(arguments)) + "}}";
        }
        catch (Exception error)
        {
            // What a task fails with comes wrapped.
            var cause = error is AggregateException ? error.GetBaseException() : error;
            var failed = cause as Failed;
            var message = failed != null ? failed.Message : cause.ToString();
            line = "{\"failure\":{\"message\":" + Quoted(message) + ",\"advice\":" + Quoted(failed?.Advice) + "}}";
            code = 1;
        }
        Console.WriteLine(line);
        Console.Out.Flush();
        // Threads that wait for others that could not be started keep nothing. Environment.Exit would stop
        // all threads first, and Mono's waits for ever, or fails, where some are at work or just starting.
        End(code);
    }

    [DllImport("libc.so.6", EntryPoint = "_exit")]
    private static extern void End(int code);

    private static string Quoted(string text)
    {
        if (text == null)
        {
            return "null";
        }
        var quoted = new StringBuilder("\"");
        foreach (var letter in text)
        {
            quoted.Append(letter == '"' || letter == '\\' || char.IsControl(letter) ? ' ' : letter);
        }
        return quoted.Append('"').ToString();
    }
}
