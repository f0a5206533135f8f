package idempotency

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
)

// The outcomes of idem_begin, and the other words of which it has a problem document.
const (
	outcomeExecute    = "execute"
	outcomeReplay     = "replay"
	outcomeInProgress = "in_progress"
	outcomeMissingKey = "missing_key"
	outcomeBadKey     = "bad_key"
	outcomeFailed     = "failed"
)

// statusOf is idem_http_status, for when the database can't be asked.
var statusOf = map[string]int{
	outcomeInProgress: 409, "mismatch": 422, "expired": 412, "retry_later": 503, "exhausted": 500, "unknown": 409,
	outcomeMissingKey: 400, outcomeBadKey: 400, outcomeFailed: 500,
}

// A localProblem is one of which the server has no document.
type localProblem struct {
	word, title string
	status      int
}

var (
	problemPrincipal   = localProblem{"unauthorized", "The request is not authenticated", 401}
	problemTooLarge    = localProblem{"body_too_large", "The body of the request is too large", 413}
	problemCoding      = localProblem{"content_encoding", "The body of the request is in an encoding that is not understood", 415}
	problemBody        = localProblem{"bad_body", "The body of the request could not be read", 400}
	problemJSON        = localProblem{"bad_json", "The body of the request is not JSON", 400}
	problemUnavailable = localProblem{"unavailable", "The request can't be executed now; it may be sent again", 503}
	problemAnswer      = localProblem{"answer_too_large", "The answer is too large to be kept", 500}
	problemInternal    = localProblem{"internal", "The request could not be executed", 500}
)

func (p *localProblem) document() map[string]any {
	return map[string]any{"type": problemType(p.word), "title": p.title, "status": p.status}
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

// documentOf an outcome is the server's, or, when that can't be asked, one without details.
func (s *Store[Tx]) documentOf(ctx context.Context, word string) map[string]any {
	document, err := s.problemOf(ctx, word)
	if err == nil && document != nil {
		return document
	}
	status := statusOf[word]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	return map[string]any{"type": problemType(word), "title": http.StatusText(status), "status": status}
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
