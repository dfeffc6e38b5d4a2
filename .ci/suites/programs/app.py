"""An application that waits as one would that asks a database: of WSGI's and of ASGI's."""
import asyncio
import time


def wsgi(environment, start):
    if environment["PATH_INFO"] == "/waits":
        time.sleep(0.002)
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]


def blocking():
    time.sleep(0.002)
    return b"ok"


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b"ok"
    if scope["path"] == "/waits":
        # As Starlette runs functions that block.
        body = await asyncio.get_running_loop().run_in_executor(None, blocking)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": body})
