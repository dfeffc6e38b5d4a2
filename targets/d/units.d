/// Measures fibers and threads by the protocol of docs/targets.md.
module units;

import core.atomic;
import core.memory : GC;
import core.sync.event;
import core.sys.posix.sys.resource;
import core.thread;
import core.time;
import orders : answer, Failed, Orders, roundLine, used;
import std.algorithm : map, min, sum;
import std.array : join;
import std.format : format;

enum warmupUnits = 100;

struct Round
{
    long create, run;
    ulong made;
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
    // Each waits as often as it has switches to make; the last turn takes it to its end. (An array of
    // those that wait, made anew at every turn, would cost more than the switches.)
    foreach (_; 0 .. switches)
        foreach (fiber; fibers)
            resumed(fiber);
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
    shared ulong born;
    auto crowd = Event(true, false);
    auto gate = Event(true, false);

    Thread unit(ulong number)
    {
        return new Thread({
            ulong switched = atomicLoad(open) ? 0 : 1;
            // The last one wakes the program: to wake it for each would count as theirs.
            if (atomicOp!"+="(born, 1) == units)
                crowd.set();
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
    crowd.wait();
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

string take(Orders orders)
{
    Round function(ulong, ulong, void delegate()) run;
    switch (orders.word("unit"))
    {
    case "fiber":
        run = &runFibers;
        break;
    case "thread":
        run = &runThreads;
        break;
    default:
        throw new Failed("there is no unit '" ~ orders.word("unit") ~ "'; the units are fiber and thread");
    }
    const units = orders.number("units", 1), switches = orders.number("switches", 1);
    const rounds = orders.number("rounds", 1), warmup = orders.number("warmup", 0);
    long warming;
    foreach (_; 0 .. warmup)
    {
        const round = run(min(units, warmupUnits), switches, {});
        warming += round.create + round.run;
    }
    orders.phase("base");
    const collected = GC.profileStats();
    const before = used();
    Round[] all;
    foreach (index; 0 .. rounds)
    {
        all ~= run(units, switches, { if (index == 0) orders.phase("alive"); });
        if (index == 0)
            orders.phase("done");
    }
    const after = used();
    const gc = GC.profileStats();
    long ns(timeval from, timeval to)
    {
        return (to.tv_sec - from.tv_sec) * 1_000_000_000L + (to.tv_usec - from.tv_usec) * 1_000L;
    }

    string line = format(`"units":%s,"switches_asked":%s,"switches_made":%s`,
            units, units * switches * rounds, all.map!(round => round.made).sum);
    line ~= format(`,"rounds":[%s]`,
            all.map!(round => roundLine(round.create, round.run)).join(","));
    line ~= format(`,"voluntary":%s,"involuntary":%s,"user_ns":%s,"system_ns":%s`,
            after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw,
            ns(before.ru_utime, after.ru_utime), ns(before.ru_stime, after.ru_stime));
    line ~= format(`,"gc":{"on":true,"collections":%s,"ns":%s}`, gc.numCollections - collected.numCollections,
            (gc.totalCollectionTime - collected.totalCollectionTime).total!"nsecs");
    if (warmup)
        line ~= format(`,"warmup":{"rounds":%s,"ns":%s}`, warmup, warming);
    return line;
}

int main(string[] arguments)
{
    return answer(arguments, &take);
}
