"""Two threads that hand over to each other by two queues. Prints the nanoseconds of a hand-over."""
import queue
import sys
import threading
import time

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
there, back = queue.SimpleQueue(), queue.SimpleQueue()


def answer():
    for _ in range(TURNS):
        back.put(there.get() + 1)


other = threading.Thread(target=answer)
begun = time.perf_counter_ns()
other.start()
value = 0
for _ in range(TURNS):
    there.put(value)
    value = back.get()
other.join()
ended = time.perf_counter_ns()
assert value == TURNS
print(round((ended - begun) / (2 * TURNS), 1))
