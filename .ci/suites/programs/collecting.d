/// Threads that allocate while the collector stops them by signals, wait for one another, and send messages.
import core.atomic, core.memory, core.sync.barrier, core.sync.condition, core.sync.mutex, core.thread;
import std.algorithm : sum;
import std.concurrency, std.parallelism, std.stdio;

class Node
{
    Node next;
    long value;
    ubyte[100] filling;

    this(Node next, long value)
    {
        this.next = next;
        this.value = value;
    }
}

long list(long seed)
{
    Node first;
    foreach (n; 0 .. 200)
        first = new Node(first, seed + n);
    if (seed % 40 == 0)
        Thread.sleep(1.msecs);
    long sum;
    for (auto node = first; node; node = node.next)
        sum += node.value;
    return sum;
}

void answers()
{
    for (;;)
    {
        auto number = receiveOnly!long;
        if (number < 0)
            return;
        ownerTid.send(number * 2);
    }
}

void main()
{
    shared long total;
    auto group = new ThreadGroup;
    foreach (n; 0 .. 8)
        (long own) {
            group.create({
                foreach (round; 0 .. 200)
                    total.atomicOp!"+="(list(own * 1000 + round));
            });
        }(n);
    foreach (_; 0 .. 10)
    {
        GC.collect();
        Thread.sleep(1.msecs);
    }
    group.joinAll();
    writeln("lists ", total.atomicLoad);
    auto lists = new long[500];
    foreach (n, ref each; parallel(lists, 10))
        each = list(n);
    writeln("parallel ", lists.sum);
    auto other = spawn(&answers);
    long said;
    foreach (n; 0L .. 500)
    {
        other.send(n);
        said += receiveOnly!long;
    }
    other.send(-1L);
    thread_joinAll();
    writeln("messages ", said);
}
