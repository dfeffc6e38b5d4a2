// The serve workload of docs/targets.md: net/http, which has a goroutine for each connection, and
// asks a backend as well.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// asking has the backend make each answer.
func asking(backend string) func(string) (string, error) {
	// By default two connections of a host are kept. No proxy stands between.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 20}}
	return func(path string) (string, error) {
		answer, err := client.Get(backend + path)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("the backend answered %s", answer.Status)
		}
		return string(body), err
	}
}

func serve(orders map[string]string) error {
	answerTo := func(path string) (string, error) { return "carefree " + path + "\n", nil }
	switch orders["kind"] {
	case "plain":
	case "backend":
		answerTo = asking(orders["backend"])
	default:
		return fmt.Errorf("there is no kind '%s' of servers here", orders["kind"])
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := func(answer http.ResponseWriter, request *http.Request) {
		body, err := answerTo(request.URL.Path)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		answer.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(answer, body)
	}
	ended := make(chan error, 2)
	go func() { ended <- http.Serve(listener, http.HandlerFunc(handler)) }()
	fmt.Printf("{\"phase\":\"serving\",\"port\":%d}\n", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		ended <- nil
	}()
	return <-ended
}

func main() {
	orders := map[string]string{}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		orders[key] = value
	}
	if err := serve(orders); err != nil {
		line, _ := json.Marshal(map[string]any{"failure": map[string]string{"message": err.Error()}})
		fmt.Println(string(line))
		os.Exit(1)
	}
	fmt.Println(`{"sample":{"units":1,"switches_asked":0,"switches_made":0,"rounds":[]}}`)
}
