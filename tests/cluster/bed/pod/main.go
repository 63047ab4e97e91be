// One static program for pods of the test bed, so that an image can be a single file:
//
//	pause               waits for SIGTERM: the sandbox container of every pod
//	serve ADDRESS TEXT  answers every request with TEXT and its host's name
//	get URL             prints the body; ends with 1 unless the answer is 200
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "pause" {
		pause()
	} else if len(os.Args) == 4 && os.Args[1] == "serve" {
		fail(serve(os.Args[2], os.Args[3]))
	} else if len(os.Args) == 3 && os.Args[1] == "get" {
		fail(get(os.Args[2]))
	} else {
		fail(fmt.Errorf("expected: pause | serve ADDRESS TEXT | get URL, got %q", os.Args[1:]))
	}
}

func pause() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}

func serve(address, text string) error {
	go func() { pause(); os.Exit(0) }()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s from %s\n", text, host)
	}))
}

func get(url string) error {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, answer.Status)
	}
	return nil
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
