// The serve workload of docs/targets.md. D's standard library has no HTTP server, and this is none that its
// programmers use: over std.socket, the least of HTTP that answers a GET, with a thread for each connection,
// or a fiber for each, which waits at an event loop (epoll) on one thread, as vibe.d's do. A backend is asked
// likewise; its connections are kept, and one that is free serves whichever request comes next.
module serve;

import core.stdc.errno : EAGAIN, errno;
import core.sys.linux.epoll;
import core.sys.posix.unistd : _exit;
import core.thread : Fiber, Thread;
import orders : answer, Failed, Orders;
import std.algorithm.searching : findSplit, startsWith;
import std.conv : to;
import std.format : format;
import std.socket;
import std.stdio : readln, stdout, writefln;
import std.string : strip, toLower;

/// The client, or the backend, has closed.
class Closed : Exception
{
    this()
    {
        super("a connection was closed");
    }
}

/// Waits until a socket can be read from or written to.
interface Loop
{
    void readable(Socket socket);
}

/// Threads wait in the kernel.
final class Kernel : Loop
{
    override void readable(Socket)
    {
    }
}

/// Fibers wait until the loop, on the thread that runs them, resumes them.
final class Epoll : Loop
{
    private int instance;
    // Those that wait, by what they wait for.
    private Fiber[int] waiting;

    this()
    {
        instance = epoll_create1(EPOLL_CLOEXEC);
    }

    override void readable(Socket socket)
    {
        await(socket.handle);
    }

    /// Parks the fiber until there is something to read.
    void await(int file)
    {
        waiting[file] = Fiber.getThis();
        epoll_event event = {events: EPOLLIN | EPOLLONESHOT, data: {fd: file}};
        // A file that is known, or was, is watched anew.
        if (epoll_ctl(instance, EPOLL_CTL_MOD, file, &event) != 0)
            epoll_ctl(instance, EPOLL_CTL_ADD, file, &event);
        Fiber.yield();
    }

    /// Runs `first` on a fiber, and then whichever can go on, until `first` has ended.
    void run(Fiber first)
    {
        first.call();
        epoll_event[256] events;
        while (first.state != Fiber.State.TERM)
        {
            const count = epoll_wait(instance, events.ptr, cast(int) events.length, -1);
            foreach (ref event; events[0 .. count < 0 ? 0 : count])
            {
                auto fiber = waiting[event.data.fd];
                waiting.remove(event.data.fd);
                fiber.call();
            }
        }
    }
}

/// A stream of heads and bodies.
final class Stream
{
    private Socket socket;
    private Loop loop;
    private char[] received;

    this(Socket socket, Loop loop)
    {
        this.socket = socket;
        this.loop = loop;
        socket.setOption(SocketOptionLevel.TCP, SocketOption.TCP_NODELAY, true);
        socket.blocking = cast(Kernel) loop !is null;
    }

    private void receive()
    {
        char[4096] buffer;
        while (true)
        {
            const count = socket.receive(buffer);
            if (count > 0)
            {
                received ~= buffer[0 .. count];
                return;
            }
            if (count == 0 || errno != EAGAIN)
                throw new Closed;
            loop.readable(socket);
        }
    }

    /// The next head, without the empty line at its end.
    string head()
    {
        while (true)
        {
            auto parts = received.findSplit("\r\n\r\n");
            if (parts)
            {
                received = parts[2];
                return parts[0].idup;
            }
            receive();
        }
    }

    /// The next bytes.
    string take(size_t length)
    {
        while (received.length < length)
            receive();
        auto taken = received[0 .. length].idup;
        received = received[length .. $];
        return taken;
    }

    /// Heads and bodies here are far shorter than a socket's buffer, so this does not wait.
    void send(string text)
    {
        if (socket.send(text) != text.length)
            throw new Closed;
    }

    void close()
    {
        socket.close();
    }
}

/// Asks the backend.
final class Backend
{
    private InternetAddress address;
    private string host;
    private Loop loop;
    private Stream[] free;

    this(string url, Loop loop)
    {
        host = url["http://".length .. $];
        auto parts = host.findSplit(":");
        address = new InternetAddress(parts[0], parts[2].to!ushort);
        this.loop = loop;
    }

    string ask(string target)
    {
        auto stream = open();
        stream.send(format!"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n"(target, host));
        const head = stream.head();
        if (!head.startsWith("HTTP/1.1 200 "))
            throw new Exception("the backend answered " ~ head);
        auto field = head.toLower.findSplit("content-length:");
        auto text = stream.take(field[2].findSplit("\r\n")[0].strip.to!size_t);
        synchronized (this)
            free ~= stream;
        return text;
    }

    private Stream open()
    {
        synchronized (this)
        {
            if (free.length)
            {
                auto stream = free[$ - 1];
                free = free[0 .. $ - 1];
                return stream;
            }
        }
        auto socket = new TcpSocket();
        // On loopback it does not wait.
        socket.connect(address);
        return new Stream(socket, loop);
    }
}

/// Answers what is asked over one connection, until the client closes it.
void attend(Stream stream, Backend backend)
{
    scope (exit)
        stream.close();
    try
    {
        while (true)
        {
            auto target = stream.head().findSplit(" ")[2].findSplit(" ")[0];
            auto text = backend ? backend.ask(target) : "carefree " ~ target ~ "\n";
            stream.send(format!"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %s\r\n\r\n%s"(text.length, text));
        }
    }
    catch (Closed)
    {
    }
}

// A function, for a loop has one variable for all its turns.
Thread attendant(Stream stream, Backend backend)
{
    auto thread = new Thread({ attend(stream, backend); });
    thread.isDaemon = true;
    return thread;
}

void byThreads(Socket listener, Backend backend)
{
    auto loop = new Kernel;
    auto accept = new Thread({
        while (true)
            attendant(new Stream(listener.accept(), loop), backend).start();
    });
    accept.isDaemon = true;
    accept.start();
    readln();
}

Fiber attendantFiber(Stream stream, Backend backend)
{
    return new Fiber({ attend(stream, backend); });
}

void byFibers(Socket listener, Backend backend, Epoll loop)
{
    auto accept = new Fiber({
        while (true)
        {
            loop.readable(listener);
            attendantFiber(new Stream(listener.accept(), loop), backend).call();
        }
    });
    accept.call();
    // Until the lab writes a line on standard input, or closes it.
    loop.run(new Fiber({ loop.await(0); }));
}

string take(Orders orders)
{
    const kind = orders.word("kind");
    if (kind != "plain" && kind != "backend")
        throw new Failed(format!"there is no kind '%s' of servers here"(kind));
    const unit = orders.word("unit");
    if (unit != "fiber" && unit != "thread")
        throw new Failed(format!"there is no unit '%s'; the units are fiber and thread"(unit));
    auto epoll = unit == "fiber" ? new Epoll : null;
    Loop loop = epoll;
    if (!epoll)
        loop = new Kernel;
    auto backend = kind == "backend" ? new Backend(orders.word("backend"), loop) : null;
    auto listener = new TcpSocket();
    listener.bind(new InternetAddress("127.0.0.1", 0));
    listener.listen(1024);
    writefln(`{"phase":"serving","port":%s}`, listener.localAddress.toPortString);
    stdout.flush();
    if (epoll)
        byFibers(listener, backend, epoll);
    else
        byThreads(listener, backend);
    return `"units":1,"switches_asked":0,"switches_made":0,"rounds":[]`;
}

void main(string[] arguments)
{
    const code = answer(arguments, &take);
    stdout.flush();
    // Threads wait for clients that have not closed.
    _exit(code);
}
