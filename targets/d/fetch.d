// The fetch workload of docs/targets.md: GETs by std.net.curl, one after the other or by a thread
// each. Its calls block the thread, so fibers have nothing to offer here.
module fetch;

import core.memory : GC;
import core.sync.mutex : Mutex;
import core.thread : Thread;
import core.time : MonoTime;
import etc.c.curl : CurlOption;
import orders : answer, Orders, roundLine;
import std.conv : to;
import std.format : format;
import std.net.curl : HTTP;

struct Errand
{
    string url;
    ulong body;
    bool keep;
    size_t readSize;
}

// Kept connections: each belongs to its handle.
final class Pool
{
    private HTTP[] idle;
    private Mutex mutex;

    this()
    {
        mutex = new Mutex;
    }

    bool take(out HTTP client)
    {
        synchronized (mutex)
        {
            if (!idle.length)
                return false;
            client = idle[$ - 1];
            idle.length--;
            return true;
        }
    }

    void give(HTTP client)
    {
        synchronized (mutex)
            idle ~= client;
    }
}

ulong fetchOne(Errand errand, Pool pool)
{
    HTTP client;
    if (!errand.keep || !pool.take(client))
    {
        client = HTTP(errand.url);
        // Whatever the environment says of proxies, the server is on this machine.
        client.handle.set(CurlOption.proxy, "");
        if (!errand.keep)
            client.addRequestHeader("Connection", "close");
        if (errand.readSize)
            client.handle.set(CurlOption.buffersize, errand.readSize.to!long);
    }
    ubyte[] received;
    client.onReceive = (ubyte[] part) { received ~= part; return part.length; };
    client.perform();
    const status = client.statusLine.code;
    if (status != 200 || received.length != errand.body)
        throw new Exception(format!"status %s with %s bytes, not 200 with %s"(status,
                received.length, errand.body));
    if (errand.keep)
        pool.give(client);
    else
        client.shutdown();
    return received.length;
}

struct Result
{
    ulong received;
    ulong allocated;
    Throwable error;
}

// D counts what each thread allocates.
Thread getter(Errand errand, Pool pool, Result* result)
{
    return new Thread({
        try
            result.received = fetchOne(errand, pool);
        catch (Throwable error)
            result.error = error;
        result.allocated = GC.stats().allocatedInCurrentThread;
    });
}

string take(Orders orders)
{
    const count = orders.number("units", 1);
    const readSize = orders.number("read_size", 0);
    if (readSize && readSize < 1024)
        throw new Exception("curl reads 1,024 bytes at a time or more");
    const errand = Errand(orders.word("url"), orders.number("body", 0),
            orders.isSet("keep_alive"), readSize);
    auto pool = new Pool;
    ulong received, allocated, passes;
    ulong pass()
    {
        passes++;
        const start = MonoTime.currTime;
        const before = GC.stats().allocatedInCurrentThread;
        if (orders.word("unit") == "sequential")
        {
            foreach (_; 0 .. count)
                received += fetchOne(errand, pool);
        }
        else
        {
            auto results = new Result[count];
            Thread[] threads;
            foreach (ref result; results)
                threads ~= getter(errand, pool, &result).start();
            foreach (thread; threads)
                thread.join();
            foreach (ref result; results)
            {
                if (result.error)
                    throw result.error;
                received += result.received;
                allocated += result.allocated;
            }
        }
        const time = MonoTime.currTime - start;
        allocated += GC.stats().allocatedInCurrentThread - before;
        return time.total!"nsecs";
    }

    ulong warm;
    const warmup = orders.number("warmup", 0);
    foreach (_; 0 .. warmup)
        warm += pass();
    orders.phase("base");
    allocated = 0;
    string[] rounds;
    foreach (_; 0 .. orders.number("rounds", 1))
        rounds ~= roundLine(0, pass());
    orders.phase("done");
    return format!(`"units":%s,"switches_asked":0,"switches_made":0,"rounds":[%-(%s,%)],`
            ~ `"warmup":{"rounds":%s,"ns":%s},"gc":{"on":true},"requests":%s,`
            ~ `"body_bytes":%s,"figures":{"bytes_allocated":%s}`)(count, rounds, warmup, warm,
            passes * count, received, allocated / rounds.length);
}

int main(string[] arguments)
{
    return answer(arguments, &take);
}
