// Executes COUNT orders by the helper for callers, and prints each key with the last answer's status.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"postgres.example/idempotency"
)

func main() {
	url, token := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	caller := idempotency.Caller{Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Attempts: 30, Timeout: 5 * time.Second, FirstPause: 20 * time.Millisecond, LongestPause: 500 * time.Millisecond}
	order := func() error {
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"effect": "called"}`))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		key := idempotency.NewKey()
		answer, err := caller.Do(r, key)
		if err == nil {
			fmt.Println(key, answer.StatusCode)
		}
		return err
	}
	orders := make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range orders {
				if err := order(); err != nil {
					log.Fatal(err)
				}
			}
		}()
	}
	for i := range count {
		orders <- i
	}
	close(orders)
	workers.Wait()
}
