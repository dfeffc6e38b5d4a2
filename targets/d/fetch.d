// The fetch workload of docs/targets.md: GETs by std.net.curl, one after the other or by a thread
// each. Its calls block the thread, so fibers have nothing to offer here.
module fetch;

import core.memory : GC;
import core.sync.mutex : Mutex;
import core.thread : Thread;
import core.time : MonoTime;
import etc.c.curl : CurlOption;
import std.algorithm : sum;
import std.conv : to;
import std.format : format;
import std.net.curl : HTTP;
import std.stdio : readln, stdout, writeln;
import std.string : indexOf;

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

string take(string[string] orders)
{
    const count = orders["units"].to!size_t;
    const readSize = orders.get("read_size", "0").to!size_t;
    if (readSize && readSize < 1024)
        throw new Exception("curl reads 1,024 bytes at a time or more");
    const errand = Errand(orders["url"], orders["body"].to!ulong,
            orders.get("keep_alive", "0") == "1", readSize);
    auto pool = new Pool;
    ulong received, allocated, passes;
    ulong pass()
    {
        passes++;
        const start = MonoTime.currTime;
        const before = GC.stats().allocatedInCurrentThread;
        if (orders["unit"] == "sequential")
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

    void phase(string name)
    {
        if (orders.get("phases", "0") != "1")
            return;
        writeln(format!`{"phase":"%s"}`(name));
        stdout.flush();
        readln();
    }

    ulong warm;
    const warmup = orders.get("warmup", "0").to!size_t;
    foreach (_; 0 .. warmup)
        warm += pass();
    phase("base");
    allocated = 0;
    string[] rounds;
    foreach (_; 0 .. orders.get("rounds", "1").to!size_t)
        rounds ~= format!`{"create_ns":0,"run_ns":%s}`(pass());
    phase("done");
    return format!(`{"sample":{"units":%s,"switches_asked":0,"switches_made":0,"rounds":[%-(%s,%)],`
            ~ `"warmup":{"rounds":%s,"ns":%s},"gc":{"on":true},"requests":%s,`
            ~ `"body_bytes":%s,"figures":{"bytes_allocated":%s}}}`)(count, rounds, warmup, warm,
            passes * count, received, allocated / rounds.length);
}

int main(string[] arguments)
{
    import std.json : JSONValue;

    string[string] orders;
    foreach (argument; arguments[1 .. $])
    {
        const at = argument.indexOf('=');
        if (at > 0)
            orders[argument[0 .. at]] = argument[at + 1 .. $];
    }
    try
    {
        writeln(take(orders));
        return 0;
    }
    catch (Throwable error) // a thread that cannot be started is an Error in D
    {
        writeln(JSONValue(["failure": JSONValue(["message": error.msg])]).toString);
        return 1;
    }
}
