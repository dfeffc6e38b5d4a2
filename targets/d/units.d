/// Measures fibers and threads by the protocol of docs/targets.md.
module units;

import core.atomic;
import core.memory : GC;
import core.sync.event;
import core.sync.semaphore;
import core.sys.posix.sys.resource;
import core.thread;
import core.time;
import std.algorithm : filter, map, min, sum;
import std.array : array, join;
import std.conv : to;
import std.format : format;
import std.stdio;
import std.string : indexOf;

enum warmupUnits = 100;

/// RUSAGE_SELF, under a name that every version of the bindings has.
enum self = 0;

struct Round
{
    long create, run;
    ulong made;
}

/// No sample can be taken.
class Failed : Exception
{
    string advice;

    this(string message, string advice = null)
    {
        super(message);
        this.advice = advice;
    }
}

long now()
{
    return MonoTime.currTime.ticks * (1_000_000_000 / MonoTime.ticksPerSecond);
}

Round runFibers(ulong units, ulong switches, void delegate() allAlive)
{
    Round round;
    void unit()
    {
        foreach (_; 0 .. switches)
            Fiber.yield();
    }

    long start = now();
    Fiber[] fibers;
    fibers.reserve(units);
    foreach (_; 0 .. units)
        fibers ~= new Fiber(&unit);
    // A call that came back because the fiber waits is one switch.
    bool resumed(Fiber fiber)
    {
        fiber.call();
        bool waits = fiber.state == Fiber.State.HOLD;
        round.made += waits;
        return waits;
    }

    foreach (fiber; fibers)
        resumed(fiber);
    round.create = now() - start;
    allAlive();
    start = now();
    auto waiting = switches == 0 ? null : fibers;
    while (waiting.length)
        waiting = waiting.filter!resumed.array;
    // What has ended keeps its stack, which is two mappings, until it is collected: three rounds of
    // 10,000 would be more than a process may have (vm.max_map_count).
    foreach (fiber; fibers)
        destroy(fiber);
    round.run = now() - start;
    return round;
}

/// The number of the unit that yielded last.
shared ulong turn;

Round runThreads(ulong units, ulong switches, void delegate() allAlive)
{
    Round round;
    shared ulong made;
    shared bool open;
    auto born = new Semaphore(0);
    auto gate = Event(true, false);

    Thread unit(ulong number)
    {
        return new Thread({
            ulong switched = atomicLoad(open) ? 0 : 1;
            born.notify();
            gate.wait();
            foreach (_; 1 .. switches)
            {
                atomicStore(turn, number);
                Thread.yield();
                switched += atomicLoad(turn) != number;
            }
            atomicOp!"+="(made, switched);
        });
    }

    long start = now();
    Thread[] threads;
    threads.reserve(units);
    foreach (number; 1 .. units + 1)
    {
        try
            threads ~= unit(number).start();
        catch (ThreadError error)
        {
            gate.set();
            throw new Failed(format("thread %s of %s could not be started: %s", number, units, error.msg),
                    "raise the limits on processes (ulimit -u, pids.max), or use --units");
        }
    }
    foreach (_; 0 .. units)
        born.wait();
    round.create = now() - start;
    allAlive();
    start = now();
    atomicStore(open, true);
    gate.set();
    foreach (thread; threads)
        thread.join();
    round.run = now() - start;
    round.made = atomicLoad(made);
    return round;
}

string take(string[string] orders)
{
    ulong number(string key, ulong missing)
    {
        return key in orders ? orders[key].to!ulong : missing;
    }

    Round function(ulong, ulong, void delegate()) run;
    switch (orders.get("unit", ""))
    {
    case "fiber":
        run = &runFibers;
        break;
    case "thread":
        run = &runThreads;
        break;
    default:
        throw new Failed("there is no unit '" ~ orders.get("unit", "") ~ "'; the units are fiber and thread");
    }
    const units = number("units", 1), switches = number("switches", 1);
    const rounds = number("rounds", 1), warmup = number("warmup", 0);
    const phases = number("phases", 0) > 0;
    void stop(string phase)
    {
        if (!phases)
            return;
        writefln(`{"phase":"%s"}`, phase);
        stdout.flush();
        readln();
    }

    long warming;
    foreach (_; 0 .. warmup)
    {
        const round = run(min(units, warmupUnits), switches, {});
        warming += round.create + round.run;
    }
    stop("base");
    rusage before, after;
    const collected = GC.profileStats();
    getrusage(self, &before);
    Round[] all;
    foreach (index; 0 .. rounds)
    {
        all ~= run(units, switches, { if (index == 0) stop("alive"); });
        if (index == 0)
            stop("done");
    }
    getrusage(self, &after);
    const gc = GC.profileStats();
    long ns(timeval from, timeval to)
    {
        return (to.tv_sec - from.tv_sec) * 1_000_000_000L + (to.tv_usec - from.tv_usec) * 1_000L;
    }

    string line = format(`{"sample":{"units":%s,"switches_asked":%s,"switches_made":%s`,
            units, units * switches * rounds, all.map!(round => round.made).sum);
    line ~= format(`,"rounds":[%s]`,
            all.map!(round => format(`{"create_ns":%s,"run_ns":%s}`, round.create, round.run)).join(","));
    line ~= format(`,"voluntary":%s,"involuntary":%s,"user_ns":%s,"system_ns":%s`,
            after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw,
            ns(before.ru_utime, after.ru_utime), ns(before.ru_stime, after.ru_stime));
    line ~= format(`,"gc":{"on":true,"collections":%s,"ns":%s}`, gc.numCollections - collected.numCollections,
            (gc.totalCollectionTime - collected.totalCollectionTime).total!"nsecs");
    if (warmup)
        line ~= format(`,"warmup":{"rounds":%s,"ns":%s}`, warmup, warming);
    return line ~ "}}";
}

int main(string[] arguments)
{
    string[string] orders;
    foreach (argument; arguments[1 .. $])
    {
        const at = argument.indexOf('=');
        if (at > 0)
            orders[argument[0 .. at]] = argument[at + 1 .. $];
    }
    try
        writeln(take(orders));
    catch (Failed failed)
    {
        const advice = failed.advice ? `"` ~ failed.advice ~ `"` : "null";
        writefln(`{"failure":{"message":"%s","advice":%s}}`, failed.msg, advice);
        return 1;
    }
    return 0;
}
