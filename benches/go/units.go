// Does with goroutines what the rows of the table ask for, measures it, and prints numbers:
//
//	crowd warm|cold UNITS YIELDS   nanoseconds, nanoseconds of processor time
//	channel ROUNDS                 the same
//	sleepers UNITS                 the same
//	parked UNITS, reading UNITS    bytes grown: whole, resident, page tables, the kernel's
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func expect(right bool, what string) {
	if !right {
		fmt.Fprintln(os.Stderr, what)
		os.Exit(1)
	}
}

func cpuTime() int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// timed prints what work takes.
func timed(work func()) {
	cpu, start := cpuTime(), time.Now()
	work()
	passed := time.Since(start).Nanoseconds()
	fmt.Println(passed, cpuTime()-cpu)
}

func crowd(units, yields int) {
	var done sync.WaitGroup
	var made int64
	done.Add(units)
	for i := 0; i < units; i++ {
		go func() {
			for i := 0; i < yields; i++ {
				runtime.Gosched()
			}
			atomic.AddInt64(&made, int64(yields))
			done.Done()
		}()
	}
	done.Wait()
	expect(made == int64(units)*int64(yields), "yields are missing")
}

func channel(rounds int) {
	// Go has no unbounded channels: room for one is as much as is ever in them.
	to, back := make(chan int, 1), make(chan int, 1)
	go func() {
		for ball := range to {
			back <- ball + 1
		}
	}()
	sum := 0
	for i := 0; i < rounds; i++ {
		to <- i
		sum += <-back
	}
	close(to)
	expect(sum == rounds*(rounds+1)/2, "a ball was lost")
}

func sleepers(units int, span time.Duration) {
	var slept int64
	var done sync.WaitGroup
	done.Add(units)
	for i := 0; i < units; i++ {
		go func() {
			start := time.Now()
			time.Sleep(span)
			if time.Since(start) >= span {
				atomic.AddInt64(&slept, 1)
			}
			done.Done()
		}()
	}
	done.Wait()
	expect(slept == int64(units), "some slept too short")
}

// lines is the sum of the lines of a file that these names begin, in bytes.
func lines(file string, names ...string) int64 {
	text, err := os.ReadFile(file)
	check(err)
	var sum int64
	for _, line := range strings.Split(string(text), "\n") {
		for _, name := range names {
			if rest, found := strings.CutPrefix(line, name+":"); found {
				kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				check(err)
				sum += kib * 1024
			}
		}
	}
	return sum
}

type memory struct{ resident, tables, kernel int64 }

func now() memory {
	return memory{
		lines("/proc/self/smaps_rollup", "Rss"),
		lines("/proc/self/status", "VmPTE"),
		lines("/proc/meminfo", "Slab", "KernelStack"),
	}
}

// waiting has units wait until free lets them go, and prints the memory grown when all do.
func waiting(units int, wait func(unit int), free func()) {
	var begun, done sync.WaitGroup
	begun.Add(units)
	done.Add(units)
	before := now()
	for i := 0; i < units; i++ {
		go func() {
			begun.Done()
			wait(i)
			done.Done()
		}()
	}
	begun.Wait()
	// The last ones are still on their way.
	time.Sleep(100 * time.Millisecond)
	after := now()
	resident, tables := after.resident-before.resident, after.tables-before.tables
	kernel := after.kernel - before.kernel
	fmt.Println(resident+tables+kernel, resident, tables, kernel)
	free()
	done.Wait()
}

func reading(units int) {
	files := make([][2]*os.File, units)
	limit := syscall.Rlimit{}
	check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max
	check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	for i := range files {
		// Without blocking, which has Go wait by epoll and not by a thread.
		kind := syscall.SOCK_STREAM | syscall.SOCK_NONBLOCK | syscall.SOCK_CLOEXEC
		pair, err := syscall.Socketpair(syscall.AF_UNIX, kind, 0)
		check(err)
		for end, number := range pair {
			files[i][end] = os.NewFile(uintptr(number), "socket")
		}
	}
	wait := func(unit int) {
		read, _ := files[unit][0].Read(make([]byte, 1))
		expect(read == 0, "a byte came")
	}
	waiting(units, wait, func() {
		for _, pair := range files {
			pair[1].Close()
		}
	})
}

func main() {
	var words []string
	var numbers []int
	for _, word := range os.Args[1:] {
		if number, err := strconv.Atoi(word); err == nil {
			numbers = append(numbers, number)
		} else {
			words = append(words, word)
		}
	}
	switch strings.Join(words, " ") {
	case "crowd warm":
		crowd(numbers[0], numbers[1])
		timed(func() { crowd(numbers[0], numbers[1]) })
	case "crowd cold":
		timed(func() { crowd(numbers[0], numbers[1]) })
	case "channel":
		channel(numbers[0])
		timed(func() { channel(numbers[0]) })
	case "sleepers":
		sleepers(numbers[0], time.Millisecond)
		timed(func() { sleepers(numbers[0], 100*time.Millisecond) })
	case "sleepers cold":
		timed(func() { sleepers(numbers[0], 100*time.Millisecond) })
	case "parked":
		// One first: starting the program is not the unit's cost.
		gate := make(chan struct{})
		go func() { <-gate }()
		gate <- struct{}{}
		waiting(numbers[0], func(int) { <-gate }, func() { close(gate) })
	case "reading":
		reading(numbers[0])
	default:
		expect(false, "what is to be done?")
	}
}
