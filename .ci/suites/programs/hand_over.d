/// Two threads that hand over to each other by a condition variable. Prints the nanoseconds of a hand-over.
import core.sync.condition, core.sync.mutex, core.thread, core.time;
import std.conv : to;
import std.stdio;

void main(string[] arguments)
{
    const turns = arguments.length > 1 ? arguments[1].to!long : 1000;
    auto mutex = new Mutex;
    auto changed = new Condition(mutex);
    long turn;
    void takeTurns(long mine)
    {
        foreach (n; 0 .. turns)
        {
            synchronized (mutex)
            {
                while (turn % 2 != mine)
                    changed.wait();
                ++turn;
                changed.notify();
            }
        }
    }
    const begun = MonoTime.currTime;
    auto other = new Thread({ takeTurns(1); });
    other.start();
    takeTurns(0);
    other.join();
    const time = MonoTime.currTime - begun;
    assert(turn == 2 * turns);
    writefln("%.1f", cast(double) time.total!"nsecs" / turn);
}
