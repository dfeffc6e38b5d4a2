// The fetch workload of docs/targets.md: GETs by net/http, one after the other, by a goroutine
// each, or by a goroutine each that has a thread of its own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type round struct {
	CreateNs int64 `json:"create_ns"`
	RunNs    int64 `json:"run_ns"`
}

type warmup struct {
	Rounds int   `json:"rounds"`
	Ns     int64 `json:"ns"`
}

type collector struct {
	On          bool   `json:"on"`
	Collections uint32 `json:"collections"`
	Ns          uint64 `json:"ns"`
}

type sample struct {
	Units         int              `json:"units"`
	SwitchesAsked int64            `json:"switches_asked"`
	SwitchesMade  int64            `json:"switches_made"`
	Rounds        []round          `json:"rounds"`
	Warmup        warmup           `json:"warmup"`
	Gc            collector        `json:"gc"`
	Figures       map[string]int64 `json:"figures"`
	Requests      int64            `json:"requests"`
	BodyBytes     int64            `json:"body_bytes"`
}

var (
	client   *http.Client
	url      string
	body     int64
	readSize int
)

func get() (int64, error) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var length int64
	if readSize == 0 {
		var all []byte
		all, err = io.ReadAll(answer.Body)
		length = int64(len(all))
	} else {
		var all []byte
		part := make([]byte, readSize)
		for err == nil {
			var read int
			read, err = answer.Body.Read(part)
			all = append(all, part[:read]...)
		}
		if err == io.EOF {
			err = nil
		}
		length = int64(len(all))
	}
	if err == nil && (answer.StatusCode != 200 || length != body) {
		err = fmt.Errorf("status %d with %d bytes, not 200 with %d", answer.StatusCode, length, body)
	}
	return length, err
}

func sequential(count int) (received int64, err error) {
	for range count {
		length, err := get()
		if err != nil {
			return 0, err
		}
		received += length
	}
	return received, nil
}

func crowd(count int, locked bool) (int64, error) {
	var received atomic.Int64
	var wrong atomic.Value
	var all sync.WaitGroup
	for range count {
		all.Add(1)
		go func() {
			defer all.Done()
			if locked {
				runtime.LockOSThread()
			}
			length, err := get()
			if err != nil {
				wrong.CompareAndSwap(nil, err.Error())
			}
			received.Add(length)
		}()
	}
	all.Wait()
	if message := wrong.Load(); message != nil {
		return 0, fmt.Errorf("%s", message)
	}
	return received.Load(), nil
}

func take(orders map[string]string) (*sample, error) {
	number := func(key string, missing int) int {
		if value, err := strconv.Atoi(orders[key]); err == nil {
			return value
		}
		return missing
	}
	count := number("units", 1)
	url, body, readSize = orders["url"], int64(number("body", 0)), number("read_size", 0)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = orders["keep_alive"] != "1"
	// The default keeps two for each host and closes the others: then nothing is kept.
	transport.MaxIdleConnsPerHost = count
	client = &http.Client{Transport: transport}
	fetchAll := func() (int64, error) { return crowd(count, orders["unit"] == "thread") }
	if orders["unit"] == "sequential" {
		fetchAll = func() (int64, error) { return sequential(count) }
	}
	input := bufio.NewReader(os.Stdin)
	phase := func(name string) {
		if orders["phases"] == "1" {
			fmt.Printf("{\"phase\":%q}\n", name)
			_, _ = input.ReadString('\n')
		}
	}

	taken := &sample{Units: count, Rounds: []round{}, Warmup: warmup{Rounds: number("warmup", 0)}}
	var received, passes int64
	pass := func() (time.Duration, error) {
		start := time.Now()
		length, err := fetchAll()
		received += length
		passes++
		return time.Since(start), err
	}
	for range taken.Warmup.Rounds {
		time, err := pass()
		if err != nil {
			return nil, err
		}
		taken.Warmup.Ns += time.Nanoseconds()
	}
	phase("base")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rounds := number("rounds", 1)
	for range rounds {
		time, err := pass()
		if err != nil {
			return nil, err
		}
		taken.Rounds = append(taken.Rounds, round{RunNs: time.Nanoseconds()})
	}
	runtime.ReadMemStats(&after)
	phase("done")
	taken.Requests, taken.BodyBytes = passes*int64(count), received
	taken.Gc = collector{true, after.NumGC - before.NumGC, after.PauseTotalNs - before.PauseTotalNs}
	// Go counts all the time, so the rounds themselves are what is told; a round's share of it.
	taken.Figures = map[string]int64{
		"bytes_allocated":   int64(after.TotalAlloc-before.TotalAlloc) / int64(rounds),
		"objects_allocated": int64(after.Mallocs-before.Mallocs) / int64(rounds),
	}
	return taken, nil
}

func main() {
	orders := map[string]string{}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		orders[key] = value
	}
	taken, err := take(orders)
	told := map[string]any{"sample": taken}
	if err != nil {
		told = map[string]any{"failure": map[string]string{"message": err.Error()}}
	}
	line, _ := json.Marshal(told)
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}
