// Threads that each wait for a file, and a first thread that waits for a line, while another thread collects: druntime
// stops all of them by signals. They get what they wait for afterwards.
//
// stopping THREADS, and "time" to say how long each collection took.
import core.atomic : atomicLoad, atomicOp;
import core.memory : GC;
import core.stdc.stdio : getc;
import core.sys.linux.sys.eventfd : eventfd;
import core.sys.posix.stdio : fdopen;
import core.sys.posix.sys.resource : getrlimit, rlimit, RLIMIT_NOFILE, setrlimit;
import core.sys.posix.unistd : pipe, read, write;
import core.thread : Thread;
import core.time : MonoTime, msecs;
import std.conv : to;
import std.stdio : writefln;

enum rounds = 5;

shared int waiting, answered;

Thread waiter(int file)
{
    return new Thread({
        ulong number;
        waiting.atomicOp!"+="(1);
        if (read(file, &number, number.sizeof) == number.sizeof && number == 1)
            answered.atomicOp!"+="(1);
    });
}

void main(string[] arguments)
{
    const count = arguments[1].to!int;
    const tells = arguments.length > 2;
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    int[] waited;
    Thread[] threads;
    foreach (n; 0 .. count)
    {
        waited ~= eventfd(0, 0);
        threads ~= waiter(waited[$ - 1]);
        threads[$ - 1].start();
    }
    while (waiting.atomicLoad < count)
        Thread.sleep(1.msecs);
    Thread.sleep(50.msecs);

    int[2] ends;
    pipe(ends);
    auto collector = new Thread({
        // By then the first thread waits.
        Thread.sleep(50.msecs);
        foreach (round; 0 .. rounds)
        {
            const begin = MonoTime.currTime;
            GC.collect();
            if (tells)
                writefln("%.1f ms", (MonoTime.currTime - begin).total!"usecs" / 1000.0);
        }
        char end = '\n';
        write(ends[1], &end, 1);
    });
    collector.start();
    const line = getc(fdopen(ends[0], "r"));
    collector.join();
    ulong one = 1;
    foreach (file; waited)
        write(file, &one, one.sizeof);
    foreach (thread; threads)
        thread.join();
    writefln("the first thread read a line: %s; %s of %s threads were answered", line == '\n', answered.atomicLoad, count);
}
