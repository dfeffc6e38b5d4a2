/// Switch and allocation of D, by hand: nanoseconds on standard output.
import core.sync.barrier, core.thread, core.time;
import std.conv : to;
import std.stdio : writeln;

void fiberSwitch(long count)
{
    auto fiber = new Fiber({ for (;;) Fiber.yield(); });
    foreach (_; 0 .. count)
        fiber.call();
}

void fiberAlloc(long count)
{
    Fiber[] all;
    foreach (_; 0 .. count)
        all ~= new Fiber({ Fiber.yield(); Fiber.yield(); });
    foreach (_; 0 .. 3)
        foreach (fiber; all)
            fiber.call();
    foreach (fiber; all)
        destroy(fiber);
}

void threadSwitch(long count)
{
    void yields()
    {
        foreach (_; 0 .. count / 2)
            Thread.yield();
    }

    auto one = new Thread(&yields).start(), other = new Thread(&yields).start();
    one.join();
    other.join();
}

void threadAlloc(long count)
{
    auto barrier = new Barrier(cast(uint) count);
    Thread[] all;
    foreach (_; 0 .. count)
        all ~= new Thread({ barrier.wait(); Thread.yield(); }).start();
    foreach (thread; all)
        thread.join();
}

void main(string[] arguments)
{
    auto what = ["fiber switch": &fiberSwitch, "fiber alloc": &fiberAlloc,
        "thread switch": &threadSwitch, "thread alloc": &threadAlloc][arguments[2] ~ " " ~ arguments[1]];
    const count = arguments[3].to!long;
    const start = MonoTime.currTime;
    what(count);
    writeln((MonoTime.currTime - start).total!"nsecs" / cast(double) count);
}
