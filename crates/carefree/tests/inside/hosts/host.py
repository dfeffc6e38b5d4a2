"""Python loads a library with fibers inside, by ctypes, which lets other threads run during a call."""
import ctypes
import os
import sys
import threading
import time
import warnings

# From 3.12 on, Python warns of a fork where the kernel counts more than one thread, as it does carriers.
warnings.simplefilter("ignore", DeprecationWarning)

library = ctypes.CDLL(sys.argv[1])
library.sleepers.restype = ctypes.c_double
assert library.has_fibers()
# Each of them parks, and keeps no thread.
assert library.waiters(1000) < 200
library.sleepers(100, 5)
assert library.meetings(200) == 200

# From threads of Python's, while another one computes.
done = []
threads = [
    threading.Thread(target=lambda: done.append(library.meetings(50))) for _ in range(8)
]
for thread in threads:
    thread.start()
sum(range(1_000_000))
for thread in threads:
    thread.join(60)
assert done == [50] * 8, done

# Functions of Python's, called by fibers, each of which is a thread to Python.
seen = []


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
def called(n):
    local.value = n
    time.sleep(0.001)
    seen.append(local.value)
    return n


local = threading.local()
assert library.call_back(called, 20) == sum(range(20))
assert sorted(seen) == list(range(20)), seen

child = os.fork()
if child == 0:
    os._exit(7 if library.meetings(20) == 20 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("done")
