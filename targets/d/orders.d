/// What the programs of this target share: orders in, phases, and one line out, as docs/targets.md
/// has it.
module orders;

import core.sys.posix.sys.resource : getrusage, rusage;
import std.conv : to;
import std.format : format;
import std.json : JSONValue;
import std.stdio : readln, stdout, writefln, writeln;
import std.string : indexOf;

/// No sample can be taken.
class Failed : Exception
{
    /// What would help, where that is known.
    string advice;

    this(string message, string advice = null)
    {
        super(message);
        this.advice = advice;
    }
}

/// The orders of a sample.
struct Orders
{
    private string[string] words;

    this(string[] arguments)
    {
        foreach (argument; arguments)
        {
            const at = argument.indexOf('=');
            if (at > 0)
                words[argument[0 .. at]] = argument[at + 1 .. $];
        }
    }

    string word(string key, string missing = "") const
    {
        return words.get(key, missing);
    }

    ulong number(string key, ulong missing) const
    {
        return key in words ? words[key].to!ulong : missing;
    }

    bool isSet(string key) const
    {
        return word(key) == "1";
    }

    /// Stops, if that was ordered, until the lab has looked at this process.
    void phase(string name) const
    {
        if (!isSet("phases"))
            return;
        writefln(`{"phase":"%s"}`, name);
        stdout.flush();
        readln();
    }
}

/// Takes a sample and prints it, or why there is none. Returns the exit code.
int answer(string[] arguments, string function(Orders) take)
{
    try
    {
        writeln(`{"sample":{`, take(Orders(arguments[1 .. $])), "}}");
        return 0;
    }
    catch (Throwable error) // a thread that cannot be started is an Error in D
    {
        auto failed = cast(Failed) error;
        auto told = JSONValue(["message": JSONValue(error.msg), "advice": JSONValue(null)]);
        if (failed && failed.advice)
            told["advice"] = failed.advice;
        writeln(JSONValue(["failure": told]).toString);
        return 1;
    }
}

/// A round, as a sample tells of it.
string roundLine(long createNs, long runNs)
{
    return format!`{"create_ns":%s,"run_ns":%s}`(createNs, runNs);
}

/// What the process has used so far, by the kernel's count.
rusage used()
{
    // RUSAGE_SELF, which not every version of the bindings has under this name.
    enum self = 0;
    rusage usage;
    getrusage(self, &usage);
    return usage;
}
