// The `serve` workload of docs/targets.md, by HttpListener: a thread for each request, or an async method
// on the pool's threads. A backend is asked by HttpClient, which a thread waits for and a method awaits; it
// keeps connections, and one that is free serves whichever request comes next.
using System;
using System.IO;
using System.Net;
using System.Net.Http;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

static class Serve
{
    static string backend;
    static HttpClient client;

    static byte[] Plain(string target)
    {
        return Encoding.ASCII.GetBytes("carefree " + target + "\n");
    }

    static void Prepare(HttpListenerContext context, byte[] body)
    {
        context.Response.ContentType = "text/plain";
        context.Response.ContentLength64 = body.Length;
    }

    // A client that has closed is none of the server's concern.
    static bool IsGone(Exception error)
    {
        return error is HttpListenerException || error is IOException || error is ObjectDisposedException;
    }

    static void Failed(HttpListenerContext context, Exception error)
    {
        if (!IsGone(error))
        {
            Console.Error.WriteLine(error);
            context.Response.Abort();
        }
    }

    static void Answer(HttpListenerContext context)
    {
        try
        {
            var target = context.Request.RawUrl;
            var body = backend == null ? Plain(target) : client.GetByteArrayAsync(backend + target).GetAwaiter().GetResult();
            Prepare(context, body);
            context.Response.OutputStream.Write(body, 0, body.Length);
            context.Response.Close();
        }
        catch (Exception error)
        {
            Failed(context, error);
        }
    }

    static async Task AnswerAsync(HttpListenerContext context)
    {
        try
        {
            var target = context.Request.RawUrl;
            var body = backend == null ? Plain(target) : await client.GetByteArrayAsync(backend + target);
            Prepare(context, body);
            await context.Response.OutputStream.WriteAsync(body, 0, body.Length);
            context.Response.Close();
        }
        catch (Exception error)
        {
            Failed(context, error);
        }
    }

    static void Threads(HttpListener listener)
    {
        var accept = new Thread(() =>
        {
            while (true)
            {
                var context = listener.GetContext();
                new Thread(() => Answer(context)) { IsBackground = true }.Start();
            }
        });
        accept.IsBackground = true;
        accept.Start();
    }

    static async Task Tasks(HttpListener listener)
    {
        while (true)
        {
            var context = await listener.GetContextAsync();
            // It awaits nothing before it asks the backend, so the pool has it whole.
            _ = Task.Run(() => AnswerAsync(context));
        }
    }

    // It takes no port of the kernel's choice.
    static int FreePort()
    {
        var socket = new TcpListener(IPAddress.Loopback, 0);
        socket.Start();
        var port = ((IPEndPoint)socket.LocalEndpoint).Port;
        socket.Stop();
        return port;
    }

    static string Take(Orders orders)
    {
        var kind = orders.Word("kind", "");
        if (kind != "plain" && kind != "backend")
        {
            throw new Failed("there is no kind '" + kind + "' of servers here");
        }
        var unit = orders.Word("unit", "");
        if (unit != "thread" && unit != "task")
        {
            throw new Failed("there is no unit '" + unit + "'; the units are task and thread");
        }
        if (kind == "backend")
        {
            backend = orders.Word("backend", "");
            // It has two connections to one host unless told otherwise.
            ServicePointManager.DefaultConnectionLimit = int.MaxValue;
            client = new HttpClient(new HttpClientHandler { UseProxy = false });
        }
        var port = FreePort();
        var listener = new HttpListener();
        listener.Prefixes.Add("http://127.0.0.1:" + port + "/");
        listener.Start();
        if (unit == "thread")
        {
            Threads(listener);
        }
        else
        {
            // It ends with the process.
            Tasks(listener).ContinueWith(ended => Console.Error.WriteLine(ended.Exception));
        }
        Console.WriteLine("{\"phase\":\"serving\",\"port\":" + port + "}");
        Console.Out.Flush();
        Console.In.ReadLine();
        return "\"units\":1,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[]";
    }

    static void Main(string[] arguments)
    {
        Orders.Answer(arguments, Take);
    }
}
