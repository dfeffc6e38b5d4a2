// Switch and allocation of Go, by hand: nanoseconds on standard output.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

func main() {
	what, unit := os.Args[1], os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	var ready, done sync.WaitGroup
	units, yields := count, 1
	if what == "switch" {
		units, yields = 2, count/2
	}
	gate := make(chan bool)
	ready.Add(units)
	done.Add(units)
	one := func() {
		if unit == "thread" {
			runtime.LockOSThread()
		}
		ready.Done()
		<-gate
		for i := 0; i < yields; i++ {
			runtime.Gosched()
		}
		done.Done()
	}
	start := time.Now()
	for i := 0; i < units; i++ {
		go one()
	}
	ready.Wait()
	if what == "switch" {
		start = time.Now()
	}
	close(gate)
	done.Wait()
	fmt.Println(float64(time.Since(start).Nanoseconds()) / float64(count))
}
