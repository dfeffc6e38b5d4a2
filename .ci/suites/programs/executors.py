"""concurrent.futures, asyncio and multiprocessing, of any Python from 3.6 on."""
import asyncio
import concurrent.futures
import multiprocessing
import os
import queue
import socket
import subprocess
import sys
import threading
import time


def square(n):
    time.sleep(0.001)
    return n * n


def executors():
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        print("threads", sum(pool.map(square, range(200))))
        futures = [pool.submit(square, n) for n in range(50)]
        print("completed", sum(each.result() for each in concurrent.futures.as_completed(futures)))
        failing = pool.submit(lambda: 1 / 0)
        print("failed", type(failing.exception()).__name__)
        slow = pool.submit(time.sleep, 0.3)
        try:
            slow.result(timeout=0.01)
        except concurrent.futures.TimeoutError:
            print("timed out")
    with concurrent.futures.ProcessPoolExecutor(3) as pool:
        print("processes", sum(pool.map(square, range(60), chunksize=5)))


async def echo(reader, writer):
    while True:
        data = await reader.read(100)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    writer.close()


async def ask(port, n):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    text = str(n).encode() * 3
    writer.write(text)
    await writer.drain()
    got = await reader.readexactly(len(text))
    writer.close()
    return got == text


async def loops():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print("asyncio echoed", sum(await asyncio.gather(*(ask(port, n) for n in range(30)))))
    loop = asyncio.get_event_loop()
    print("asyncio threads", sum(await asyncio.gather(*(loop.run_in_executor(None, square, n) for n in range(60)))))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print('said')", stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    print("asyncio process", out.decode().strip(), child.returncode)
    found = await loop.getaddrinfo("localhost", port, family=socket.AF_INET)
    print("asyncio name", found[0][4][0])
    server.close()
    await server.wait_closed()


def produce(out, n):
    for value in range(20):
        out.put(n * 100 + value)


def add(total, lock, event):
    event.wait()
    for _ in range(200):
        with lock:
            total.value += 1


def processes():
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        out = context.Queue()
        workers = [context.Process(target=produce, args=(out, n)) for n in range(3)]
        for each in workers:
            each.start()
        print(method, "queue", sum(out.get(timeout=60) for _ in range(60)))
        for each in workers:
            each.join()
        total, event = context.Value("i", 0, lock=False), context.Event()
        lock = context.Lock()
        workers = [context.Process(target=add, args=(total, lock, event)) for _ in range(3)]
        for each in workers:
            each.start()
        event.set()
        for each in workers:
            each.join()
        print(method, "value", total.value, [each.exitcode for each in workers])
        with context.Pool(3) as pool:
            print(method, "pool", sum(pool.imap_unordered(square, range(40))))
        with context.Manager() as manager:
            shared = manager.dict()
            threads = [threading.Thread(target=shared.__setitem__, args=(n, n * n)) for n in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            print(method, "manager", sum(shared.values()))


def threads():
    work, done = queue.Queue(10), queue.Queue()

    def worker():
        for n in iter(work.get, None):
            done.put(subprocess.call([sys.executable, "-S", "-c", "pass"]) + n if n % 20 == 0 else n)
    workers = [threading.Thread(target=worker) for _ in range(10)]
    for each in workers:
        each.start()
    for n in range(100):
        work.put(n)
    for _ in workers:
        work.put(None)
    for each in workers:
        each.join()
    print("queue", sum(done.get() for _ in range(100)))
    barrier, condition, turns = threading.Barrier(5), threading.Condition(), []

    def turn(n):
        barrier.wait()
        for round_ in range(20):
            with condition:
                condition.wait_for(lambda: len(turns) % 5 == n)
                turns.append(n)
                condition.notify_all()
    workers = [threading.Thread(target=turn, args=(n,)) for n in range(5)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    print("turns", turns == list(range(5)) * 20)
    child = os.fork()
    if child == 0:
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()
        os._exit(7)
    print("fork", os.waitpid(child, 0)[1] >> 8)


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    threads()
    executors()
    if sys.version_info < (3, 7):
        asyncio.get_event_loop().run_until_complete(loops())
    else:
        asyncio.run(loops())
    processes()
