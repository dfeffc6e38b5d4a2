"""The `serve` workload of docs/targets.md: http.server's ThreadingHTTPServer, a thread for each
connection; or asyncio's streams, a task for each connection, with an HTTP of the least (asyncio has
none of its own)."""

import json
import sys

ORDERS = dict(argument.split("=", 1) for argument in sys.argv[1:])


def serving(port):
    print(json.dumps({"phase": "serving", "port": port}), flush=True)


def threads():
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # which keeps connections
        wbufsize = -1  # head and body in one packet
        disable_nagle_algorithm = True

        def do_GET(self):
            body = f"carefree {self.path}\n".encode()
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


async def tasks():
    import asyncio

    async def attend(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = b"carefree " + head.split(b" ", 2)[1] + b"\n"
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
    if ORDERS.get("kind") != "plain":
        raise ValueError(f"there is no kind '{ORDERS.get('kind')}' of servers here")
    if ORDERS["unit"] == "task":
        import asyncio

        asyncio.run(tasks())
    else:
        threads()


try:
    main()
    print(json.dumps({"sample": {"units": 1, "switches_asked": 0, "switches_made": 0, "rounds": []}}))
except (OSError, RuntimeError, ValueError) as error:
    print(json.dumps({"failure": {"message": f"{type(error).__name__}: {error}"}}))
    sys.exit(1)
