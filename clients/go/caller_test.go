package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postgres.example/idempotency"
)

func TestNewKey(t *testing.T) {
	before := idempotency.NewKey()
	time.Sleep(2 * time.Millisecond)
	after := idempotency.NewKey()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if !form.MatchString(before) || !form.MatchString(after) || before >= after {
		t.Error(before, after)
	}
}

func caller() *idempotency.Caller {
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // which repeats nothing by itself
	return &idempotency.Caller{Client: fresh, FirstPause: time.Millisecond, LongestPause: 10 * time.Millisecond}
}

// Between the caller and the service requests are lost, answers are lost, and answers are cut off.
func TestACallThroughFaults(t *testing.T) {
	withEach(t, func(b *bench) {
		var sent atomic.Int32
		protected := b.transactional(b.route())
		faults := func(next http.Handler) http.Handler {
			inner := protected(next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := sent.Add(1)
				if n == 1 { // the request is lost
					panic(http.ErrAbortHandler)
				}
				answer := httptest.NewRecorder()
				inner.ServeHTTP(answer, r)
				if n == 2 { // the answer is lost
					panic(http.ErrAbortHandler)
				}
				for name, values := range answer.Header() {
					w.Header()[name] = values
				}
				w.WriteHeader(answer.Code)
				if n == 3 { // it is cut off
					_, _ = w.Write(answer.Body.Bytes()[:2])
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write(answer.Body.Bytes())
			})
		}
		url := b.serve(faults, func(w http.ResponseWriter, r *http.Request) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
			return b.effect(r.Context(), "paid")
		})
		r, _ := http.NewRequest("POST", url, strings.NewReader(`{"amount": 100}`))
		r.Header.Set("Content-Type", "application/json")
		response, err := caller().Do(r, idempotency.NewKey())
		if err != nil {
			b.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != 201 || string(body) != `{"amount": 100}` || sent.Load() != 4 || b.effects() != "paid" {
			b.Error(response, string(body), sent.Load(), b.effects())
		}
	})
}

func TestWhichAnswersAreFinal(t *testing.T) {
	problem := func(word string) string { return `{"type": "/problems/idempotency/` + word + `"}` }
	for _, c := range []struct {
		status  int
		problem string
		replay  bool
		final   bool
	}{
		{status: 200, final: true}, {status: 303, final: true}, {status: 404, final: true}, {status: 409, final: true},
		{status: 408}, {status: 425}, {status: 429}, {status: 500}, {status: 503},
		{status: 500, replay: true, final: true},
		{status: 409, problem: "in-progress"}, {status: 425, problem: "in-progress"}, {status: 400, problem: "in-progress"},
		{status: 409, problem: "unknown"}, {status: 503, problem: "retry-later"}, {status: 503, problem: "unavailable"},
		{status: 500, problem: "internal"}, {status: 422, problem: "mismatch", final: true},
		{status: 412, problem: "expired", final: true}, {status: 500, problem: "exhausted", final: true},
		{status: 500, problem: "failed", replay: true, final: true}, {status: 400, problem: "bad-key", final: true},
	} {
		sent := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if sent++; r.Header.Get("Idempotency-Key") != `"k"` {
				t.Error(r.Header)
			}
			if c.replay {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			if c.problem != "" {
				w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, problem(c.problem))
		}))
		call := caller()
		call.Attempts = 3
		r, _ := http.NewRequest("POST", server.URL, nil)
		response, err := call.Do(r, "k")
		var open *idempotency.NotFinal
		switch {
		case c.final && (err != nil || sent != 1 || response.StatusCode != c.status):
			t.Error(c, response, err, sent)
		case !c.final && (!errors.As(err, &open) || sent != 3 || open.Response.StatusCode != c.status):
			t.Error(c, response, err, sent)
		}
		server.Close()
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	for name, field := range map[string]func(seconds int) string{
		"seconds": strconv.Itoa,
		"a date": func(seconds int) string {
			return time.Now().Add(time.Duration(seconds+1) * time.Second).UTC().Format(http.TimeFormat)
		},
	} {
		seconds := 1
		var times []time.Time
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if times = append(times, time.Now()); len(times) == 1 {
				w.Header().Set("Retry-After", field(seconds))
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		r, _ := http.NewRequest("POST", server.URL, nil)
		if response, err := caller().Do(r, "k"); err != nil || response.StatusCode != 200 || len(times) != 2 ||
			times[1].Sub(times[0]) < time.Second-50*time.Millisecond {
			t.Error(name, response, err, times)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		seconds, times = 3600, nil
		started := time.Now()
		r, _ = http.NewRequestWithContext(ctx, "POST", server.URL, nil)
		var open *idempotency.NotFinal
		if _, err := caller().Do(r, "k"); !errors.As(err, &open) || !errors.Is(err, context.DeadlineExceeded) ||
			open.Response == nil || time.Since(started) > 30*time.Second {
			t.Error(name, err, time.Since(started))
		}
		server.Close()
	}
}

func TestCallsThatCantBeMeant(t *testing.T) {
	r, _ := http.NewRequest("POST", "http://127.0.0.1:1", nil)
	for _, c := range []struct {
		caller idempotency.Caller
		key    string
	}{{idempotency.Caller{}, ""}, {idempotency.Caller{Attempts: -1}, "k"}, {idempotency.Caller{Timeout: -1}, "k"}} {
		var open *idempotency.NotFinal
		if _, err := c.caller.Do(r, c.key); err == nil || errors.As(err, &open) {
			t.Error(fmt.Sprint(c), err)
		}
	}
}
