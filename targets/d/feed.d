// The feed workload of docs/targets.md: people who need so many bites each, fed by threads or
// fibers; by fibers over a few threads; or by processes with fibers in each.
module feed;

import core.atomic : atomicLoad, atomicOp, atomicStore, MemoryOrder;
import core.thread : Fiber, Thread;
import core.time : MonoTime;
import orders : answer, Orders, roundLine, used;
import std.algorithm : all, filter, map, max, min, sum;
import std.array : array;
import std.file : thisExePath;
import std.format : format;
import std.process : pipeProcess, Redirect, wait;
import std.string : indexOf;

final class Person
{
    private const ulong need;
    private ulong iron, calcium, fiber;

    this(ulong need)
    {
        this.need = need;
    }

    bool satisfied() const
    {
        return iron == need && calcium == need && fiber == need;
    }

    // Not inlined, or the compiler makes one addition of a whole meal.
    pragma(inline, false) void bite()
    {
        iron++;
        calcium++;
        fiber++;
    }

    ulong eaten() const
    {
        return iron + calcium + fiber;
    }
}

// Switches of the kernel's are counted by the kernel.
ulong byThreads(Person[] people, bool yields)
{
    Thread[] threads;
    foreach (person; people)
        threads ~= eater(person, yields).start();
    foreach (thread; threads)
        thread.join();
    return 0;
}

// As byThreads, of threads whose switches are not the kernel's: a yield after which the same one was the
// last to eat has switched to none.
ulong byCountedThreads(Person[] people)
{
    shared ulong made;
    shared size_t last = size_t.max;
    Thread[] threads;
    foreach (number, person; people)
        threads ~= countingEater(person, number, &last, &made).start();
    foreach (thread; threads)
        thread.join();
    return atomicLoad(made);
}

Thread countingEater(Person person, size_t number, shared(size_t)* last, shared(ulong)* made)
{
    return new Thread({
        ulong mine;
        while (!person.satisfied)
        {
            person.bite();
            atomicStore!(MemoryOrder.raw)(*last, number);
            Thread.yield();
            if (atomicLoad!(MemoryOrder.raw)(*last) != number)
                ++mine;
        }
        atomicOp!"+="(*made, mine);
    });
}

// A function of its own: a closure in a loop would have the last person for all.
Thread eater(Person person, bool yields)
{
    return new Thread({
        while (!person.satisfied)
        {
            person.bite();
            if (yields)
                Thread.yield();
        }
    });
}

final class FeedFiber : Fiber
{
    private Person person;
    private bool yields;

    this(Person person, bool yields)
    {
        this.person = person;
        this.yields = yields;
        super(&run);
    }

    private void run()
    {
        while (!person.satisfied)
        {
            person.bite();
            if (yields)
                Fiber.yield();
        }
    }
}

ulong byFibers(Person[] people, bool yields)
{
    FeedFiber[] hungry;
    foreach (person; people)
        hungry ~= new FeedFiber(person, yields);
    ulong made;
    while (hungry.length)
    {
        size_t left;
        foreach (fiber; hungry)
        {
            fiber.call();
            if (fiber.state == Fiber.State.HOLD)
            {
                made++;
                hungry[left++] = fiber;
            }
        }
        hungry = hungry[0 .. left];
    }
    return made;
}

Person[][] shares(Person[] people, size_t workers)
{
    auto dealt = new Person[][workers];
    foreach (at, person; people)
        dealt[at % workers] ~= person;
    return dealt;
}

ulong overThreads(Person[] people, bool yields, size_t workers)
{
    auto counts = new ulong[workers];
    Thread[] threads;
    foreach (at, share; shares(people, workers))
        threads ~= worker(share, yields, &counts[at]).start();
    foreach (thread; threads)
        thread.join();
    return counts.sum;
}

Thread worker(Person[] share, bool yields, ulong* made)
{
    return new Thread({ *made = byFibers(share, yields); });
}

// This program, run again for a share of the people each. What they ate comes back as a number.
void overProcesses(string self, ulong people, ulong nutrients, bool yields, size_t workers,
        ref ulong made, ref ulong eaten)
{
    auto running = workers.count.map!((at) {
        const share = people / workers + (at < people % workers ? 1 : 0);
        return pipeProcess([
            self, "unit=fiber", format!"units=%s"(share), format!"nutrients=%s"(nutrients),
            format!"yields=%s"(yields ? 1 : 0)
        ], Redirect.stdout);
    }).array;
    foreach (child; running)
    {
        const line = child.stdout.readln();
        wait(child.pid);
        made += numberAfter(line, `"switches_made":`);
        eaten += numberAfter(line, `"eaten":`);
    }
}

auto count(size_t workers)
{
    import std.range : iota;

    return iota(workers);
}

ulong numberAfter(string line, string key)
{
    import std.conv : parse;

    const at = line.indexOf(key);
    if (at < 0)
        throw new Exception("a process did not say what it did, but: " ~ line);
    auto rest = line[at + key.length .. $];
    return parse!ulong(rest);
}

string take(Orders orders)
{
    const people = orders.number("units", 1);
    const nutrients = orders.number("nutrients", 1);
    const yields = orders.isSet("yields");
    const how = orders.word("how", "units");
    const threads = orders.word("unit") == "thread";
    const kernel = orders.number("kernel", 1) != 0;
    const workers = max(1, min(orders.number("workers", 2), people));
    ulong made, eaten;
    string[] rounds;
    const before = used();
    foreach (_; 0 .. orders.number("rounds", 1))
    {
        Person[] crowd;
        if (how != "processes")
            foreach (person; 0 .. people)
                crowd ~= new Person(nutrients);
        const start = MonoTime.currTime;
        if (how == "processes")
            overProcesses(thisExePath, people, nutrients, yields, workers, made, eaten);
        else if (how == "hybrid")
            made += overThreads(crowd, yields, workers);
        else if (threads && yields && !kernel)
            made += byCountedThreads(crowd);
        else if (threads)
            made += byThreads(crowd, yields);
        else
            made += byFibers(crowd, yields);
        const time = MonoTime.currTime - start;
        if (!crowd.all!(person => person.satisfied))
            throw new Exception("a person is still hungry");
        eaten += crowd.map!(person => person.eaten).sum;
        rounds ~= roundLine(0, time.total!"nsecs");
    }
    const after = used();
    const asked = yields ? people * nutrients * rounds.length : 0;
    const voluntary = after.ru_nvcsw - before.ru_nvcsw;
    const involuntary = after.ru_nivcsw - before.ru_nivcsw;
    if (threads && kernel)
        made = min(asked, voluntary + involuntary);
    return format!(`"units":%s,"switches_asked":%s,"switches_made":%s,"rounds":[%-(%s,%)],`
            ~ `"voluntary":%s,"involuntary":%s,"gc":{"on":true},"eaten":%s`)(people,
            asked, made, rounds, voluntary, involuntary, eaten);
}

int main(string[] arguments)
{
    return answer(arguments, &take);
}
