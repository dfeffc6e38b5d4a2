"""Measures threads, greenlets and asyncio's tasks by the protocol of docs/targets.md."""

import gc
import json
import os
import resource
import sys
import threading
import time

try:
    clock = time.perf_counter_ns
except AttributeError:  # before 3.7

    def clock():
        return int(time.perf_counter() * 1e9)


# Since 3.11 time.sleep(0) waits for the timer's slack, some 50 us; os.sched_yield does not, but
# releases the interpreter's lock only from 3.10.7 on.
YIELD = os.sched_yield if sys.version_info >= (3, 10, 7) else (lambda: time.sleep(0))

WARMUP_UNITS = 100


class Failure(Exception):
    """No sample can be taken."""

    def __init__(self, message, advice=None):
        super().__init__(message)
        self.line = {"failure": {"message": message, "advice": advice}}


def run_threads(units, switches, all_alive):
    """One round: what it took to create and to run the units, and the switches they made."""
    born = 0
    count = threading.Lock()
    crowd = threading.Event()
    opened = threading.Event()
    made = [0] * units
    turn = -1

    def unit(number):
        nonlocal born, turn
        switched = 0 if opened.is_set() else 1
        # The last one wakes the program: to wake it for each would count as theirs.
        with count:
            born += 1
            if born == units:
                crowd.set()
        opened.wait()
        for _ in range(switches - 1):
            turn = number
            YIELD()
            # Only one thread runs at a time: another number was written during another's turn.
            if turn != number:
                switched += 1
        made[number] = switched

    start = clock()
    threads = []
    for number in range(units):
        thread = threading.Thread(target=unit, args=(number,))
        try:
            thread.start()
        except RuntimeError as error:
            opened.set()
            raise Failure(
                "thread {} of {} could not be started: {}".format(number + 1, units, error),
                "raise the limits on processes (ulimit -u, pids.max), or use --units",
            )
        threads.append(thread)
    crowd.wait()
    create = clock() - start
    all_alive()
    start = clock()
    opened.set()
    for thread in threads:
        thread.join()
    return create, clock() - start, sum(made)


def run_greenlets(units, switches, all_alive):
    from greenlet import getcurrent, greenlet

    def unit():
        switch = getcurrent().parent.switch
        for _ in range(switches):
            switch(True)
        return False

    # A switch that came back because the greenlet waits is one.
    made = 0
    start = clock()
    greenlets = [greenlet(unit) for _ in range(units)]
    for one in greenlets:
        made += one.switch()
    create = clock() - start
    all_alive()
    start = clock()
    # Each waits as often as it has switches to make; the last turn takes it to its end.
    for _ in range(switches):
        for one in greenlets:
            made += one.switch()
    # What has ended is freed in the round that made it.
    del greenlets, one
    return create, clock() - start, made


def run_tasks(units, switches, all_alive):
    import asyncio

    async def crowd():
        born = 0
        all_born = asyncio.Event()
        opened = asyncio.Event()
        made = 0
        turn = -1

        async def unit(number):
            nonlocal born, made, turn
            born += 1
            if born == units:
                all_born.set()
            switched = 0 if opened.is_set() else 1
            await opened.wait()
            for _ in range(switches - 1):
                turn = number
                await asyncio.sleep(0)
                if turn != number:
                    switched += 1
            made += switched

        start = clock()
        tasks = [asyncio.ensure_future(unit(number)) for number in range(units)]
        await all_born.wait()
        create = clock() - start
        all_alive()
        start = clock()
        opened.set()
        for task in tasks:
            await task
        return create, clock() - start, made

    return asyncio.run(crowd())


RUN = {"thread": run_threads, "greenlet": run_greenlets, "task": run_tasks}


def stop(phase):
    """Stops until the lab has looked at this process."""
    print(json.dumps({"phase": phase}), flush=True)
    sys.stdin.readline()


def take(orders):
    run = RUN[orders["unit"]]
    number = lambda key, default: int(orders.get(key, default))
    units, switches, rounds = number("units", 1), number("switches", 1), number("rounds", 1)
    phase = stop if number("phases", 0) else lambda name: None

    warmup = {"rounds": number("warmup", 0), "ns": 0}
    for _ in range(warmup["rounds"]):
        create, ran, _ = run(min(units, WARMUP_UNITS), switches, lambda: None)
        warmup["ns"] += create + ran

    phase("base")
    collections = sum(stat["collections"] for stat in gc.get_stats())
    before = resource.getrusage(resource.RUSAGE_SELF)
    times, made = [], 0
    for number in range(rounds):
        first = number == 0
        create, ran, switched = run(units, switches, lambda: phase("alive") if first else None)
        times.append({"create_ns": create, "run_ns": ran})
        made += switched
        if first:
            phase("done")
    after = resource.getrusage(resource.RUSAGE_SELF)
    sample = {
        "units": units,
        "switches_asked": units * switches * rounds,
        "switches_made": made,
        "rounds": times,
        "voluntary": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary": after.ru_nivcsw - before.ru_nivcsw,
        "user_ns": int((after.ru_utime - before.ru_utime) * 1e9),
        "system_ns": int((after.ru_stime - before.ru_stime) * 1e9),
        "gc": {
            "on": gc.isenabled(),
            "collections": sum(stat["collections"] for stat in gc.get_stats()) - collections,
        },
    }
    if warmup["rounds"]:
        sample["warmup"] = warmup
    return {"sample": sample}


def main():
    try:
        line, code = take(dict(argument.split("=", 1) for argument in sys.argv[1:])), 0
    except Failure as failure:
        line, code = failure.line, 1
    print(json.dumps(line), flush=True)
    sys.exit(code)


main()
