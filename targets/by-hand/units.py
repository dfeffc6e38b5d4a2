"""Switch and allocation of Python, by hand: nanoseconds on standard output."""

import os
import sys
import threading
from time import perf_counter_ns

what, unit, count = sys.argv[1], sys.argv[2], int(sys.argv[3])


def greenlet_switch():
    import greenlet

    def forever():
        while True:
            main.switch()

    main = greenlet.getcurrent()
    other = greenlet.greenlet(forever)
    other.switch()
    start = perf_counter_ns()
    for _ in range(count):
        other.switch()
    return perf_counter_ns() - start


def greenlet_alloc():
    import greenlet

    def twice():
        main.switch()
        main.switch()

    main = greenlet.getcurrent()
    start = perf_counter_ns()
    crowd = [greenlet.greenlet(twice) for _ in range(count)]
    for _ in range(3):
        for one in crowd:
            one.switch()
    return perf_counter_ns() - start


def task_switch():
    import asyncio

    async def yields():
        for _ in range(count // 2):
            await asyncio.sleep(0)

    async def both():
        start = perf_counter_ns()
        await asyncio.gather(yields(), yields())
        return perf_counter_ns() - start

    return asyncio.run(both())


def task_alloc():
    import asyncio

    async def all_of_them():
        go = asyncio.Event()

        async def one():
            await go.wait()
            await asyncio.sleep(0)

        start = perf_counter_ns()
        tasks = [asyncio.create_task(one()) for _ in range(count)]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks)
        return perf_counter_ns() - start

    return asyncio.run(all_of_them())


def thread_switch():
    def yields():
        for _ in range(count // 2):
            os.sched_yield()

    threads = [threading.Thread(target=yields) for _ in range(2)]
    start = perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return perf_counter_ns() - start


def thread_alloc():
    barrier = threading.Barrier(count + 1)

    def one():
        barrier.wait()
        os.sched_yield()

    start = perf_counter_ns()
    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    barrier.wait()
    for thread in threads:
        thread.join()
    return perf_counter_ns() - start


print(globals()[unit + "_" + what]() / count)
