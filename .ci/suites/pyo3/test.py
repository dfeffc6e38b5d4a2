"""Uses a PyO3 module with fibers inside from many threads of Python's: test.py NAME, or --list."""
import asyncio
import concurrent.futures
import os
import socketserver
import subprocess
import sys
import threading
import time

import sample


def crowd(count, function):
    """What `function(n)` returns in as many threads of Python's at once."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, range(count)))


def fibers():
    assert sample.has_fibers()


def sleepers():
    begin, counted, ends = time.monotonic(), [0], threading.Event()

    def count():
        while not ends.is_set():
            counted[0] += 1
            time.sleep(0.001)
    counter = threading.Thread(target=count)
    counter.start()
    times = crowd(20, lambda _: sample.sleepers(500, 200))
    ends.set()
    counter.join()
    # One after the other it would be 2,000 seconds; and other threads go on meanwhile.
    assert all(0.2 <= each < 20 for each in times) and time.monotonic() - begin < 30, times
    assert counted[0] > 20, counted


def sleepers_with_the_lock():
    assert 0.02 <= sample.sleepers_with_the_lock(1000, 20) < 20


def sockets():
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            number = self.rfile.readline().strip()
            time.sleep(0.01)
            self.wfile.write(b"answer " + number)

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 500
        daemon_threads = True
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        answers = crowd(4, lambda _: sample.fetch(server.server_address[1], 50))
        server.shutdown()
    assert answers == [[f"answer {n}" for n in range(50)]] * 4, answers


def calls():
    local, seen, lock = threading.local(), set(), threading.Lock()

    def called(n):
        # Each fiber is a thread to Python, of which no other one has the variables.
        assert not hasattr(local, "value")
        local.value = n
        with lock:
            seen.add(threading.get_ident())
        time.sleep(0.002)
        sum(range(2000))
        assert local.value == n
        return n * n
    for results in crowd(6, lambda _: sample.call(called, 40)):
        assert results == [n * n for n in range(40)], results
    assert len(seen) > 1


def exceptions():
    def called(n):
        if n == 7:
            raise KeyError("seven")
        return n

    def attempt(_):
        try:
            sample.call(called, 20)
        except KeyError as error:
            return error.args
        return None
    assert crowd(8, attempt) == [("seven",)] * 8


def panics():
    def attempt(_):
        try:
            sample.panics()
        except BaseException as error:
            return type(error).__name__, str(error)
        return None
    assert crowd(8, attempt) == [("PanicException", "on a fiber")] * 8


def meetings():
    assert crowd(16, lambda _: sample.meetings(100)) == [100] * 16


def executor():
    async def main():
        loop = asyncio.get_running_loop()
        waits = [loop.run_in_executor(None, sample.meetings, 30) for _ in range(50)]
        assert await asyncio.gather(*waits) == [30] * 50
    asyncio.run(main())


def forks():
    sample.meetings(10)
    child = os.fork()
    if child == 0:
        os._exit(7 if sample.meetings(20) == 20 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def programs():
    sleeping = threading.Thread(target=sample.sleepers, args=(200, 300))
    sleeping.start()
    outputs = crowd(4, lambda n: subprocess.run(["echo", str(n)], stdout=subprocess.PIPE, check=True).stdout)
    assert outputs == [b"%d\n" % n for n in range(4)], outputs
    sleeping.join()


def ends_while_fibers_wait():
    threading.Thread(target=sample.sleepers, args=(500, 100_000), daemon=True).start()
    threading.Thread(target=sample.call, args=(lambda _: time.sleep(100), 5), daemon=True).start()
    time.sleep(0.3)


TESTS = [fibers, sleepers, sleepers_with_the_lock, sockets, calls, exceptions, panics, meetings, executor, forks,
         programs, ends_while_fibers_wait]

if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(*(test.__name__ for test in TESTS))
    else:
        [test] = [test for test in TESTS if test.__name__ == sys.argv[1]]
        test()
