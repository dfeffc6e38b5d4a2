"""The `feed` workload of docs/targets.md: people who need so many bites each, fed by threads,
greenlets or asyncio tasks; by fibers over a few threads; or by processes with fibers in each."""

import json
import multiprocessing
import os
import sys
import threading
import time

ORDERS = dict(argument.split("=", 1) for argument in sys.argv[1:])

# Before any clock starts, and only where it may be missing or is slow to load.
if ORDERS["unit"] == "greenlet":
    import greenlet
if ORDERS["unit"] == "task":
    import asyncio


class Person:
    __slots__ = ("need", "iron", "calcium", "fiber")

    def __init__(self, need):
        self.need = need
        self.iron = self.calcium = self.fiber = 0

    def satisfied(self):
        return self.iron == self.need and self.calcium == self.need and self.fiber == self.need

    def bite(self):
        self.iron += 1
        self.calcium += 1
        self.fiber += 1


class Turn:
    """The person that ate last: a yield after which it is still the same one made no switch."""

    def __init__(self):
        self.last = None
        self.made = 0


def by_threads(people, yields):
    turn = Turn()

    def eat(person):
        made = 0
        while not person.satisfied():
            person.bite()
            if yields:
                turn.last = person
                os.sched_yield()
                made += turn.last is not person
        results.append(made)

    results = []  # append is atomic
    threads = []
    for person in people:
        thread = threading.Thread(target=eat, args=(person,))
        threads.append(thread)
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def by_greenlets(people, yields):
    feeder = greenlet.getcurrent()

    def eat(person):
        while not person.satisfied():
            person.bite()
            if yields:
                feeder.switch(True)
        return False

    # All begin before any goes on.
    fed = [(greenlet.greenlet(eat), person) for person in people]
    hungry = [one for one, person in fed if one.switch(person)]
    made = len(hungry)
    while hungry:
        before = made
        for one in hungry:
            made += one.switch()
        # A list is made anew when some are full, and not at every bite.
        if made - before < len(hungry):
            hungry = [one for one in hungry if not one.dead]
    return made


def by_tasks(people, yields):
    turn = Turn()

    async def eat(person):
        while not person.satisfied():
            person.bite()
            if yields:
                turn.last = person
                await asyncio.sleep(0)
                turn.made += turn.last is not person

    async def feed():
        await asyncio.gather(*(eat(person) for person in people))

    asyncio.run(feed())
    return turn.made


def over_threads(feed, people, yields, workers):
    results = []

    def work(share):
        results.append(feed(share, yields))

    threads = [threading.Thread(target=work, args=(people[at::workers],)) for at in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def over_processes(feed, people, yields, workers):
    """People who ate in another process are told of by it: their counts come back."""
    context = multiprocessing.get_context("fork")

    def work(share, pipe):
        made = feed(share, yields)
        pipe.send((made, [(person.iron, person.calcium, person.fiber) for person in share]))

    running = []
    for at in range(workers):
        share = people[at::workers]
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(share, sender))
        process.start()
        sender.close()
        running.append((share, receiver, process))
    total = 0
    for share, receiver, process in running:
        made, eaten = receiver.recv()
        process.join()
        total += made
        for person, counts in zip(share, eaten):
            person.iron, person.calcium, person.fiber = counts
    return total


def main():
    count, nutrients = int(ORDERS["units"]), int(ORDERS["nutrients"])
    yields, how = ORDERS.get("yields") == "1", ORDERS.get("how", "units")
    workers = max(1, min(int(ORDERS.get("workers", 2)), count))
    feed = {"thread": by_threads, "greenlet": by_greenlets, "task": by_tasks}[ORDERS["unit"]]
    rounds, made, eaten = [], 0, 0
    for _ in range(int(ORDERS.get("rounds", 1))):
        people = [Person(nutrients) for _ in range(count)]
        start = time.perf_counter_ns()
        if how == "hybrid":
            made += over_threads(feed, people, yields, workers)
        elif how == "processes":
            made += over_processes(feed, people, yields, workers)
        else:
            made += feed(people, yields)
        rounds.append({"create_ns": 0, "run_ns": time.perf_counter_ns() - start})
        eaten += sum(person.iron + person.calcium + person.fiber for person in people)
        if not all(person.satisfied() for person in people):
            raise SystemExit("a person is still hungry")
    return {
        "units": count,
        "switches_asked": count * nutrients * len(rounds) if yields else 0,
        "switches_made": made,
        "rounds": rounds,
        "eaten": eaten,
    }


try:
    print(json.dumps({"sample": main()}))
except (RuntimeError, MemoryError, OSError) as error:
    print(json.dumps({"failure": {"message": f"{type(error).__name__}: {error}"}}))
    sys.exit(1)
