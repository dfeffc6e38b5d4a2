"""The `fetch` workload of docs/targets.md: GETs by http.client, one after the other, by a thread
each or by a gevent greenlet each; or by aiohttp, by an asyncio task each."""

import json
import sys
import time
import tracemalloc

ORDERS = dict(argument.split("=", 1) for argument in sys.argv[1:])
UNIT = ORDERS["unit"]

if UNIT == "gevent":
    # As gevent's users do: before anything else is imported, so that all of it is gevent's.
    from gevent import monkey

    monkey.patch_all()

import http.client
import threading
from urllib.parse import urlsplit

COUNT = int(ORDERS["units"])
KEEP = ORDERS.get("keep_alive") == "1"
READ_SIZE = int(ORDERS.get("read_size", 0))
BODY = int(ORDERS["body"])
URL = ORDERS["url"]
HOST = urlsplit(URL)

idle = []  # kept connections; append and pop are atomic
requests = 0
received = 0


def check(status, length):
    if status != 200 or length != BODY:
        raise ValueError(f"status {status} with {length} bytes, not 200 with {BODY}")


def read(answer):
    if READ_SIZE == 0:
        return len(answer.read())
    parts = []
    while part := answer.read(READ_SIZE):
        parts.append(part)
    return len(b"".join(parts))


def get():
    connection = None
    if KEEP:
        try:
            connection = idle.pop()
        except IndexError:
            pass
    if connection is None:
        connection = http.client.HTTPConnection(HOST.hostname, HOST.port)
    connection.request("GET", HOST.path, headers={} if KEEP else {"Connection": "close"})
    answer = connection.getresponse()
    length = read(answer)
    check(answer.status, length)
    if KEEP:
        idle.append(connection)
    else:
        connection.close()
    return length


def sequential():
    return sum(get() for _ in range(COUNT))


def threads():
    lengths, errors = [], []

    def work():
        try:
            lengths.append(get())
        except Exception as error:
            errors.append(error)

    crowd = [threading.Thread(target=work) for _ in range(COUNT)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    if errors:
        raise errors[0]
    return sum(lengths)


def greenlets():
    import gevent

    crowd = [gevent.spawn(get) for _ in range(COUNT)]
    gevent.joinall(crowd, raise_error=True)
    return sum(fiber.value for fiber in crowd)


def run(fetch_all):
    """The rounds, and then the pass that counts."""
    global requests, received
    rounds = []
    warmup = int(ORDERS.get("warmup", 0))
    start = time.perf_counter_ns()
    for _ in range(warmup):
        received += fetch_all()
    warm = {"rounds": warmup, "ns": time.perf_counter_ns() - start}
    phase("base")
    for _ in range(int(ORDERS.get("rounds", 1))):
        start = time.perf_counter_ns()
        received += fetch_all()
        rounds.append({"create_ns": 0, "run_ns": time.perf_counter_ns() - start})
    phase("done")
    requests = COUNT * (warmup + len(rounds))
    figures = {}
    if ORDERS.get("count") == "1":
        # Python counts what is alive, not what was ever allocated: the most at once is told, and
        # what is left.
        tracemalloc.start()
        received += fetch_all()
        figures["bytes_retained"], figures["bytes_traced_at_most"] = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        requests += COUNT
    return {
        "units": COUNT,
        "switches_asked": 0,
        "switches_made": 0,
        "rounds": rounds,
        "warmup": warm,
        "figures": figures,
        "requests": requests,
        "body_bytes": received,
    }


def phase(name):
    if ORDERS.get("phases") == "1":
        print(json.dumps({"phase": name}), flush=True)
        sys.stdin.readline()


def tasks():
    """aiohttp's session belongs to its loop, so one loop runs all rounds."""
    import asyncio

    import aiohttp

    async def get(session):
        async with session.get(URL) as answer:
            if READ_SIZE == 0:
                length = len(await answer.read())
            else:
                parts = []
                while part := await answer.content.read(READ_SIZE):
                    parts.append(part)
                length = len(b"".join(parts))
            check(answer.status, length)
            return length

    async def crowd(session):
        return sum(await asyncio.gather(*(get(session) for _ in range(COUNT))))

    async def open_session():
        # Its default is 100 connections; as many as there are GETs, as for the others.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=not KEEP)
        )

    with asyncio.Runner() as runner:
        session = runner.run(open_session())
        try:
            return run(lambda: runner.run(crowd(session)))
        finally:
            runner.run(session.close())


def main():
    if UNIT == "task":
        return tasks()
    return run({"sequential": sequential, "thread": threads, "gevent": greenlets}[UNIT])


try:
    print(json.dumps({"sample": main()}))
except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
    print(json.dumps({"failure": {"message": f"{type(error).__name__}: {error}"}}))
    sys.exit(1)
