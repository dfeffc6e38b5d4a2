// A library in Go: goroutines that sleep, compute, collect and recover from a fault.
package main

import "C"

import (
	"runtime"
	"sync"
	"time"
)

//export Work
func Work(n C.long) C.long {
	var all sync.WaitGroup
	var lock sync.Mutex
	sum := 0
	for i := 0; i < 20; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			bytes := make([]byte, 10000)
			time.Sleep(time.Millisecond)
			for j := 0; j < 200000; j++ {
				bytes[j%10000] += byte(j)
			}
			lock.Lock()
			sum += i
			lock.Unlock()
		}(i)
	}
	all.Wait()
	runtime.GC()
	func() {
		defer func() { recover() }()
		var nowhere *int
		*nowhere = 1
	}()
	return C.long(sum) + n
}

func main() {}
