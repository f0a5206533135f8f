package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Caller sends requests to services that are protected, and repeats each with its key until its
// answer is final. The zero value is ready.
type Caller struct {
	// Client is http.DefaultClient by default.
	Client *http.Client
	// KeyHeader and ReplayHeader are the service's: Idempotency-Key and Idempotent-Replayed by default.
	KeyHeader, ReplayHeader string
	// Attempts is how often a request is sent: by default 8.
	Attempts int
	// Timeout is for one sending and its answer: by default 30 s.
	Timeout time.Duration
	// FirstPause and LongestPause bound the pauses, which double: by default 200 ms and 30 s. Each is a
	// random part of its bound. A Retry-After of the service counts if it is longer.
	FirstPause, LongestPause time.Duration
}

// NotFinal is the error of a request without a final answer: whether it has taken effect is not known.
// Send it again later, with the same key.
type NotFinal struct {
	// Response is the last one, nil where there was none. Its body can be read.
	Response *http.Response
	// Cause is why there was none, or why no other is waited for.
	Cause error
}

func (e *NotFinal) Error() string {
	text := "idempotency: no final answer"
	if e.Response != nil {
		text += ": " + e.Response.Status
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *NotFinal) Unwrap() error { return e.Cause }

// Do sends a request under a key until the answer is final, at most Attempts times. Its body is read
// into memory. A final answer may be a refusal: look at its status.
func (c *Caller) Do(r *http.Request, key string) (*http.Response, error) {
	if key == "" {
		return nil, errors.New("idempotency: a request is sent under a key: make one by NewKey, and store it")
	}
	d := *c
	orDefault(&d.Client, http.DefaultClient)
	orDefault(&d.KeyHeader, "Idempotency-Key")
	orDefault(&d.ReplayHeader, "Idempotent-Replayed")
	orDefault(&d.Attempts, 8)
	orDefault(&d.Timeout, 30*time.Second)
	orDefault(&d.FirstPause, 200*time.Millisecond)
	orDefault(&d.LongestPause, 30*time.Second)
	if d.Attempts < 0 || d.Timeout < 0 || d.FirstPause < 0 || d.LongestPause < 0 {
		return nil, errors.New("idempotency: an option of the Caller is negative")
	}
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	return d.send(r, key, body)
}

func (c *Caller) send(r *http.Request, key string, body []byte) (*http.Response, error) {
	ctx := r.Context()
	for attempt := 1; ; attempt++ {
		response, content, err := c.once(ctx, r, key, body)
		if err == nil && c.isFinal(response, content) {
			return response, nil
		}
		last := &NotFinal{response, err}
		if attempt >= c.Attempts {
			return nil, last
		}
		span := c.pause(attempt, response)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < span {
			last.Cause = errors.Join(err, context.DeadlineExceeded)
			return nil, last
		}
		select {
		case <-time.After(span):
		case <-ctx.Done():
			last.Cause = errors.Join(err, context.Cause(ctx))
			return nil, last
		}
	}
}

// once reads the whole answer: one that was cut off is none.
func (c *Caller) once(ctx context.Context, r *http.Request, key string, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r = withBody(r.WithContext(ctx), body)
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Header.Set(c.KeyHeader, FormatKey(key))
	response, err := c.Client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("the answer was cut off: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, content, nil
}

// notFinal has the problems after which the same request may still execute, or have executed.
var notFinal = map[string]bool{"in-progress": true, "unknown": true, "retry-later": true, "unavailable": true,
	"handler-late": true, "internal": true}

// isFinal: every repeat would get the same answer. A service may give problems other statuses, so their
// types come first.
func (c *Caller) isFinal(response *http.Response, content []byte) bool {
	if response.Header.Get(c.ReplayHeader) == "true" {
		return true
	}
	if word := problemIn(response, content); word != "" {
		return !notFinal[word]
	}
	return DefaultKeep(response.StatusCode)
}

// problemIn an answer is the last word of its type, "" if it has none of ours.
func problemIn(response *http.Response, content []byte) string {
	if plainMediaType(response.Header.Get("Content-Type")) != "application/problem+json" {
		return ""
	}
	var document struct{ Type string }
	_ = json.Unmarshal(content, &document)
	_, word, _ := strings.Cut(document.Type, "/problems/idempotency/")
	return word
}

func (c *Caller) pause(attempt int, response *http.Response) time.Duration {
	bound := c.LongestPause
	if doubled := c.FirstPause << min(attempt-1, 30); doubled > 0 {
		bound = min(bound, doubled)
	}
	span := mathrand.N(bound + 1)
	if response != nil {
		span = max(span, retryAfter(response.Header.Get("Retry-After")))
	}
	return span
}

// retryAfter is in seconds, or a date.
func retryAfter(field string) time.Duration {
	if seconds, err := strconv.ParseUint(field, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(field); err == nil {
		return time.Until(date)
	}
	return 0
}
