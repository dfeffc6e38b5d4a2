// The feed workload of docs/targets.md: people who need so many bites each, fed by goroutines on
// one thread, by goroutines that have a thread of their own, by goroutines over a few threads, or
// by processes with goroutines in each.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type person struct {
	need, iron, calcium, fiber int
}

func (p *person) satisfied() bool {
	return p.iron == p.need && p.calcium == p.need && p.fiber == p.need
}

func (p *person) bite() {
	p.iron++
	p.calcium++
	p.fiber++
}

type round struct {
	CreateNs int64 `json:"create_ns"`
	RunNs    int64 `json:"run_ns"`
}

type sample struct {
	Units         int     `json:"units"`
	SwitchesAsked int64   `json:"switches_asked"`
	SwitchesMade  int64   `json:"switches_made"`
	Rounds        []round `json:"rounds"`
	Voluntary     int64   `json:"voluntary"`
	Involuntary   int64   `json:"involuntary"`
	Eaten         int64   `json:"eaten"`
}

type answer struct {
	Sample  *sample  `json:"sample,omitempty"`
	Failure *failure `json:"failure,omitempty"`
}

type failure struct {
	Message string `json:"message"`
}

// The person that ate last: a yield after which it is still the same one made no switch.
var last atomic.Int64

func eat(p *person, number int64, yields bool) (made int64) {
	for !p.satisfied() {
		p.bite()
		if yields {
			last.Store(number)
			runtime.Gosched()
			if last.Load() != number {
				made++
			}
		}
	}
	return made
}

// feed gives each person a goroutine, and that a thread of its own where it is locked.
func feed(people []person, yields, locked bool) int64 {
	var made atomic.Int64
	var all sync.WaitGroup
	for at := range people {
		all.Add(1)
		go func() {
			defer all.Done()
			if locked {
				// Never unlocked: the thread ends with the goroutine, as a thread of C does.
				runtime.LockOSThread()
			}
			made.Add(eat(&people[at], int64(at), yields))
		}()
	}
	all.Wait()
	return made.Load()
}

// overProcesses has this program run itself for a share of the people each. The others' people
// cannot be seen from here: what they ate, and that they have enough, comes back as a number.
func overProcesses(people, nutrients, workers int, yields string) (made, eaten int64, err error) {
	own, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	var running []*exec.Cmd
	var outputs []*bytes.Buffer
	for at := range workers {
		share := people / workers
		if at < people%workers {
			share++
		}
		command := exec.Command(own, "unit=goroutine", "units="+strconv.Itoa(share),
			"nutrients="+strconv.Itoa(nutrients), "yields="+yields)
		output := new(bytes.Buffer)
		command.Stdout = output
		command.Stderr = os.Stderr
		if err := command.Start(); err != nil {
			return 0, 0, err
		}
		running = append(running, command)
		outputs = append(outputs, output)
	}
	for at, command := range running {
		if err := command.Wait(); err != nil {
			return 0, 0, err
		}
		var theirs answer
		if err := json.Unmarshal(outputs[at].Bytes(), &theirs); err != nil {
			return 0, 0, err
		}
		made += theirs.Sample.SwitchesMade
		eaten += theirs.Sample.Eaten
	}
	return made, eaten, nil
}

func take(orders map[string]string) (*sample, error) {
	number := func(key string, missing int) int {
		if value, err := strconv.Atoi(orders[key]); err == nil {
			return value
		}
		return missing
	}
	count, nutrients := number("units", 1), number("nutrients", 1)
	workers := max(1, min(number("workers", 2), count))
	yields, locked := orders["yields"] == "1", orders["unit"] == "thread"
	switch {
	case orders["how"] == "hybrid":
		runtime.GOMAXPROCS(workers)
	case !locked:
		runtime.GOMAXPROCS(1)
	}
	taken := &sample{Units: count}
	var eaten int64
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for range number("rounds", 1) {
		people := make([]person, count)
		for at := range people {
			people[at].need = nutrients
		}
		start := time.Now()
		if orders["how"] == "processes" {
			made, theirs, err := overProcesses(count, nutrients, workers, orders["yields"])
			if err != nil {
				return nil, err
			}
			taken.SwitchesMade += made
			eaten += theirs
		} else {
			taken.SwitchesMade += feed(people, yields, locked)
		}
		taken.Rounds = append(taken.Rounds, round{RunNs: time.Since(start).Nanoseconds()})
		if orders["how"] != "processes" {
			for at := range people {
				if p := &people[at]; p.satisfied() {
					eaten += int64(p.iron + p.calcium + p.fiber)
				}
			}
		}
		if yields {
			taken.SwitchesAsked += int64(count) * int64(nutrients)
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	taken.Voluntary = int64(after.Nvcsw - before.Nvcsw)
	taken.Involuntary = int64(after.Nivcsw - before.Nivcsw)
	taken.Eaten = eaten
	return taken, nil
}

func main() {
	orders := map[string]string{}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		orders[key] = value
	}
	taken, err := take(orders)
	told := answer{Sample: taken}
	if err != nil {
		told = answer{Failure: &failure{err.Error()}}
	}
	line, _ := json.Marshal(told)
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}
