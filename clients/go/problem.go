package idempotency

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
)

// The outcomes of idem_begin, and the other words that have a problem document (contract.go).
const (
	outcomeExecute    = "execute"
	outcomeReplay     = "replay"
	outcomeInProgress = "in_progress"
	outcomeMissingKey = "missing_key"
	outcomeBadKey     = "bad_key"
	outcomeFailed     = "failed"

	problemPrincipal   = "unauthorized"
	problemTooLarge    = "body_too_large"
	problemCoding      = "content_encoding"
	problemBody        = "bad_body"
	problemJSON        = "bad_json"
	problemUnavailable = "unavailable"
	problemAnswer      = "answer_too_large"
	problemLate        = "handler_late"
	problemInternal    = "internal"
)

type problem struct {
	title  string
	status int
	local  bool // the server has no document of it
}

func problemType(word string) string {
	text := []byte("/problems/idempotency/" + word)
	for i, c := range text {
		if c == '_' {
			text[i] = '-'
		}
	}
	return string(text)
}

// documentOf a word is the server's, or one without details if the server has none or does not answer.
func (s *Store[Tx]) documentOf(ctx context.Context, word string) map[string]any {
	known, ok := problems[word]
	if !known.local {
		if document, err := s.problemOf(ctx, word); err == nil && document != nil {
			return document
		}
	}
	if !ok {
		known = problem{title: http.StatusText(http.StatusInternalServerError), status: http.StatusInternalServerError}
	}
	return map[string]any{"type": problemType(word), "title": known.title, "status": known.status}
}

// problemAnswerOf makes a problem document an answer, with the status of the route.
func (route *Route) problemAnswerOf(word string, document map[string]any, retryAfter *float64) *Answer {
	status := http.StatusInternalServerError
	switch known := document["status"].(type) {
	case float64:
		status = int(known)
	case int:
		status = known
	}
	if other, ok := route.Statuses[word]; ok {
		status = other
	}
	document["status"] = status
	a := &Answer{Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}}}
	if retryAfter == nil && word == outcomeInProgress {
		hint := 1.0
		retryAfter = &hint
	}
	if retryAfter != nil {
		seconds := int(math.Ceil(*retryAfter))
		document["retry_after"] = seconds
		a.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if status == http.StatusUnauthorized {
		a.Header.Set("WWW-Authenticate", "Bearer")
	}
	a.Body, _ = json.Marshal(document)
	return a
}

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}
