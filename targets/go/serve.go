// The serve workload of docs/targets.md: net/http, which has a goroutine for each connection.
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

func serve(orders map[string]string) error {
	if orders["kind"] != "plain" {
		return fmt.Errorf("there is no kind '%s' of servers here", orders["kind"])
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(answer, "carefree "+request.URL.Path+"\n")
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
