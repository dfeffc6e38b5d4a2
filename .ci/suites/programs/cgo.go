// Go with cgo, whose threads libc creates: goroutines that wait in C, and C's threads that call back.
package main

/*
#cgo LDFLAGS: -pthread
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counted;

static long waits(long n) {
	usleep(2000);
	pthread_mutex_lock(&lock);
	counted += n;
	pthread_mutex_unlock(&lock);
	return n * 2;
}

extern long callBack(long);

static void *begin(void *argument) { return (void *)callBack((long)argument); }

static long threads(long many) {
	pthread_t *all = malloc(many * sizeof *all);
	long sum = 0;
	for (long n = 0; n < many; n++) pthread_create(&all[n], NULL, begin, (void *)n);
	for (long n = 0; n < many; n++) {
		void *result;
		pthread_join(all[n], &result);
		sum += (long)result;
	}
	free(all);
	return sum;
}

static long total(void) { return counted; }
*/
import "C"

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

//export callBack
func callBack(n C.long) C.long {
	channel := make(chan C.long)
	go func() { channel <- n * 3 }()
	return <-channel
}

func main() {
	var group sync.WaitGroup
	var lock sync.Mutex
	var sum int64
	for n := 0; n < 100; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			doubled := int64(C.waits(C.long(n)))
			lock.Lock()
			sum += doubled
			lock.Unlock()
		}()
	}
	group.Wait()
	fmt.Println("waited", sum, int64(C.total()))
	fmt.Println("called back", int64(C.threads(40)))
	// The collector stops goroutines that compute, by signals.
	var kept [][]byte
	for n := 0; n < 4; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			total := 0
			for i := 0; i < 20_000_000; i++ {
				total += i ^ n
			}
			lock.Lock()
			kept = append(kept, make([]byte, total%7+1))
			lock.Unlock()
		}()
	}
	for n := 0; n < 5; n++ {
		runtime.GC()
	}
	group.Wait()
	fmt.Println("collected", len(kept))
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(connection, connection); connection.Close() }()
		}
	}()
	for n := 0; n < 20; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			connection, _ := net.Dial("tcp", listener.Addr().String())
			connection.Write([]byte("hello"))
			got := make([]byte, 5)
			io.ReadFull(connection, got)
			connection.Close()
			lock.Lock()
			sum += int64(len(got))
			lock.Unlock()
		}()
	}
	group.Wait()
	listener.Close()
	fmt.Println("echoed", sum)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	select {
	case got := <-signals:
		fmt.Println("signal", got)
	case <-time.After(10 * time.Second):
		fmt.Println("no signal")
	}
	said, err := exec.Command("echo", "said").Output()
	fmt.Println("process", string(said), err)
}
