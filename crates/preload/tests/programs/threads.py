import os, queue, signal, subprocess, sys, threading, time

total = []
threads = [threading.Thread(target=total.append, args=(i,)) for i in range(500)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(total), len({thread.native_id for thread in threads}))

there, back = queue.Queue(), queue.Queue()
def echo():
    while (value := there.get()) is not None: back.put(value * 2)
thread = threading.Thread(target=echo); thread.start()
print(sum((there.put(i), back.get())[1] for i in range(1000)))
there.put(None); thread.join()

came = []
signal.signal(signal.SIGALRM, lambda *_: came.append("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.02)
time.sleep(0.1)
signal.signal(signal.SIGUSR1, lambda *_: came.append("usr1"))
os.kill(os.getpid(), signal.SIGUSR1)
print(came)
blocked = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True)
print(blocked.stdout.strip(), os.system("exit 3") >> 8)
event = threading.Event()
print(event.wait(0.02))
pid = os.fork()
if pid == 0:
    thread = threading.Thread(target=lambda: os.write(1, b"in the child\n")); thread.start(); thread.join()
    os._exit(7)
sys.stdout.flush()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

# A fiber of the runtime's own waits for each name, on a stack that a thread has had.
import socket
def look_up():
    found = [socket.getaddrinfo("localhost", 80) for _ in range(3)]
    return all(found)
for _ in range(5):
    lookers = [threading.Thread(target=look_up) for _ in range(8)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
print("looked up", look_up())
