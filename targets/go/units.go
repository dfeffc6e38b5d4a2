// Measures goroutines, free and locked to a thread each, by the protocol of docs/targets.md.
package main

import (
	"bufio"
	"encoding/json"
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

const warmupUnits = 100

type round struct {
	Create int64 `json:"create_ns"`
	Run    int64 `json:"run_ns"`
}

// turn is the number of the unit that yielded last.
var turn int64

// unit waits at the gate, yields, and returns the switches it made.
func unit(number int64, switches int, alive *sync.WaitGroup, gate <-chan struct{}) int64 {
	var made int64
	select {
	case <-gate:
	default:
		made = 1
	}
	alive.Done()
	<-gate
	for i := 1; i < switches; i++ {
		atomic.StoreInt64(&turn, number)
		runtime.Gosched()
		if atomic.LoadInt64(&turn) != number {
			made++
		}
	}
	return made
}

func run(locked bool, units, switches int, allAlive func()) (round, int64) {
	var alive, done sync.WaitGroup
	var made int64
	gate := make(chan struct{})
	alive.Add(units)
	done.Add(units)
	start := time.Now()
	for i := 0; i < units; i++ {
		number := int64(i) + 1
		go func() {
			defer done.Done()
			if locked {
				// Never unlocked: the thread ends with the goroutine, as a thread does.
				runtime.LockOSThread()
			}
			atomic.AddInt64(&made, unit(number, switches, &alive, gate))
		}()
	}
	alive.Wait()
	create := time.Since(start)
	allAlive()
	start = time.Now()
	close(gate)
	done.Wait()
	return round{int64(create), int64(time.Since(start))}, atomic.LoadInt64(&made)
}

func fail(message string) {
	line, _ := json.Marshal(map[string]interface{}{
		"failure": map[string]interface{}{"message": message},
	})
	fmt.Println(string(line))
	os.Exit(1)
}

func main() {
	orders := map[string]string{}
	for _, argument := range os.Args[1:] {
		if at := strings.IndexByte(argument, '='); at > 0 {
			orders[argument[:at]] = argument[at+1:]
		}
	}
	number := func(key string, missing int) int {
		text, there := orders[key]
		if !there {
			return missing
		}
		value, err := strconv.Atoi(text)
		if err != nil {
			fail(key + " takes a number, not " + text)
		}
		return value
	}
	name := orders["unit"]
	if name != "goroutine" && name != "thread" {
		fail("there is no unit '" + name + "'; the units are goroutine and thread")
	}
	locked := name == "thread"
	units, switches, rounds := number("units", 1), number("switches", 1), number("rounds", 1)
	warmup, phases := number("warmup", 0), number("phases", 0) > 0
	stdin := bufio.NewReader(os.Stdin)
	stop := func(phase string) {
		if phases {
			fmt.Printf("{\"phase\":%q}\n", phase)
			stdin.ReadString('\n')
		}
	}

	var warming int64
	for i := 0; i < warmup; i++ {
		took, _ := run(locked, min(units, warmupUnits), switches, func() {})
		warming += took.Create + took.Run
	}

	stop("base")
	var before, after syscall.Rusage
	var heapBefore, heapAfter runtime.MemStats
	runtime.ReadMemStats(&heapBefore)
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	var times []round
	var made int64
	for i := 0; i < rounds; i++ {
		took, switched := run(locked, units, switches, func() {
			if i == 0 {
				stop("alive")
			}
		})
		times = append(times, took)
		made += switched
		if i == 0 {
			stop("done")
		}
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	runtime.ReadMemStats(&heapAfter)
	sample := map[string]interface{}{
		"units":          units,
		"switches_asked": units * switches * rounds,
		"switches_made":  made,
		"rounds":         times,
		"voluntary":      after.Nvcsw - before.Nvcsw,
		"involuntary":    after.Nivcsw - before.Nivcsw,
		"user_ns":        after.Utime.Nano() - before.Utime.Nano(),
		"system_ns":      after.Stime.Nano() - before.Stime.Nano(),
		"gc": map[string]interface{}{
			"on":          true,
			"collections": heapAfter.NumGC - heapBefore.NumGC,
			"ns":          heapAfter.PauseTotalNs - heapBefore.PauseTotalNs,
		},
	}
	if warmup > 0 {
		sample["warmup"] = map[string]interface{}{"rounds": warmup, "ns": warming}
	}
	line, err := json.Marshal(map[string]interface{}{"sample": sample})
	if err != nil {
		fail(err.Error())
	}
	fmt.Println(string(line))
}

// min is in the language from Go 1.21 on; this is for those before.
func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
