"""The `serve` workload of docs/targets.md: http.server's ThreadingHTTPServer, a thread for each
connection; or asyncio's streams, a task for each connection, with an HTTP of the least (asyncio has
none of its own). A backend is asked by http.client, or over asyncio's streams; its connections are
kept, and one that is free serves whichever request comes next."""

import json
import sys

ORDERS = dict(argument.split("=", 1) for argument in sys.argv[1:])


def serving(port):
    print(json.dumps({"phase": "serving", "port": port}), flush=True)


def threads(backend):
    import http.client
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    free = []

    def ask(path):
        try:
            connection = free.pop()
        except IndexError:
            connection = http.client.HTTPConnection(backend)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(f"the backend answered {answer.status}")
        free.append(connection)
        return body

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # which keeps connections
        wbufsize = -1  # head and body in one packet
        disable_nagle_algorithm = True

        def do_GET(self):
            body = ask(self.path) if backend else f"carefree {self.path}\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass  # it writes a line for each request

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # those of idle connections end with the program
        request_queue_size = 1024  # its 5 make the kernel drop connections

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serving(server.server_address[1])
    sys.stdin.readline()


async def tasks(backend):
    import asyncio

    free = []
    host, _, port = (backend or "").partition(":")

    async def ask(target):
        reader, writer = free.pop() if free else await asyncio.open_connection(host, int(port))
        writer.write(b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, backend.encode()))
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        if status.split()[1] != b"200":
            raise ConnectionError(f"the backend answered {status.decode()}")
        fields = (field.partition(b":") for field in fields)
        [length] = [value for name, _, value in fields if name.lower() == b"content-length"]
        body = await reader.readexactly(int(length))
        free.append((reader, writer))
        return body

    async def attend(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split(b" ", 2)[1]
                body = await ask(target) if backend else b"carefree " + target + b"\n"
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed
        finally:
            writer.close()

    server = await asyncio.start_server(attend, "127.0.0.1", 0, backlog=1024)
    serving(server.sockets[0].getsockname()[1])
    # On a thread of its own: a read of standard input would stop all tasks.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def main():
    kind = ORDERS.get("kind")
    if kind not in ("plain", "backend"):
        raise ValueError(f"there is no kind '{kind}' of servers here")
    backend = ORDERS["backend"].removeprefix("http://") if kind == "backend" else None
    if ORDERS["unit"] == "task":
        import asyncio

        asyncio.run(tasks(backend))
    else:
        threads(backend)


try:
    main()
    print(json.dumps({"sample": {"units": 1, "switches_asked": 0, "switches_made": 0, "rounds": []}}))
except (OSError, RuntimeError, ValueError) as error:
    print(json.dumps({"failure": {"message": f"{type(error).__name__}: {error}"}}))
    sys.exit(1)
