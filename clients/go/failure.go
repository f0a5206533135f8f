package idempotency

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// ErrLeaseLost is the cause (context.Cause) with which the context of leased work ends when its claim
// is lost, or may be: the work must have no further effect.
var ErrLeaseLost = errors.New("idempotency: the lease of this claim is lost")

// ErrAnswerTooLarge is what a handler gets that writes more than Route.MaxAnswerBytes.
var ErrAnswerTooLarge = errors.New("idempotency: the answer is too large to be kept")

// ErrReturned is what a goroutine gets that writes to the answer of a handler after it has returned.
var ErrReturned = errors.New("idempotency: the handler has returned, and its answer is stored")

// ErrHandlerTimeout is the cause with which the context of a handler ends at Route.HandlerTimeout.
var ErrHandlerTimeout = errors.New("idempotency: the handler did not return in time")

// An abandoned error is of a handler that goes on although its context has ended.
type abandoned struct{ error }

func (e abandoned) Unwrap() error { return e.error }

// ErrNothingHappened is what errors of NothingHappened are, by errors.Is.
var ErrNothingHappened = errors.New("idempotency: nothing happened")

// NothingHappened says of the error with which leased work fails that the work has had no effect: the
// gateway refused the connection, for instance. The request may then be tried again, even where the
// policy of the scope has on_lease_expiry => 'unknown'. NothingHappened(nil) is nil.
func NothingHappened(err error) error {
	if err == nil {
		return nil
	}
	return nothingHappened{err}
}

type nothingHappened struct{ error }

func (e nothingHappened) Unwrap() []error { return []error{e.error, ErrNothingHappened} }

var errUnknown = errors.New("idempotency: the outcome of this claim was declared unknown")

var errTimeout = errors.New("idempotency: the database did not answer in time")

// A Refusal says why work was not done.
type Refusal struct {
	// Outcome is one of idem_begin, or "failed": the request has failed for good.
	Outcome string
	// RetryAfter is zero where it is not known.
	RetryAfter time.Duration
	// Reason is why the attempt before failed, where that is known.
	Reason string
}

func (r *Refusal) Error() string {
	text := "idempotency: " + r.Outcome
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// ErrEnded is what Database.Query and Commit answer for a transaction that the handler has ended.
var ErrEnded = errors.New("idempotency: the handler has committed or rolled back the transaction of its claim")

// A databaseError is of a statement of ours, or of a transaction's end: without an SQLSTATE it means
// that the connection is lost. Errors of handlers mean no such thing, for they may have other
// connections than ours.
type databaseError struct{ error }

func (e databaseError) Unwrap() error { return e.error }

func ofDatabase(err error) error {
	if err == nil {
		return nil
	}
	return databaseError{err}
}

// A commitError is of a COMMIT. Without an SQLSTATE it is not known whether it was done.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

func isInDoubt(err error) bool {
	var commit commitError
	return errors.As(err, &commit) && !isConflict(err) && !errors.Is(err, ErrEnded)
}

// An unrecordedError is of a COMMIT of which no record says whether it was done.
type unrecordedError struct{ error }

func (e unrecordedError) Unwrap() error { return e.error }

// sqlState answers "" for an error that is not the server's.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

func stateIn(err error, states ...string) bool {
	state := sqlState(err)
	for _, s := range states {
		if state == s {
			return true
		}
	}
	return false
}

func isConflict(err error) bool { return stateIn(err, "40001", "40P01") }

func isLostConnection(err error) bool {
	state := sqlState(err)
	if state != "" {
		return strings.HasPrefix(state, "08") || stateIn(err, "57P01", "57P02", "57P03")
	}
	var ours databaseError
	return errors.As(err, &ours) && !errors.Is(err, ErrEnded) && !errors.Is(err, errTimeout) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// isUnavailable is true of everything that means "not now": the database is away, full, or a standby.
func isUnavailable(err error) bool {
	return isConflict(err) || isLostConnection(err) || strings.HasPrefix(sqlState(err), "53") ||
		stateIn(err, "25006", "25P03", "25P04", "55P03", "57014", "57P05") ||
		errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// isRetryable is true of what a repetition from idem_begin on may cure. A COMMIT whose answer did not
// come in time is: it is asked for again, if there is a record.
func isRetryable(err error) bool {
	var unrecorded unrecordedError
	if errors.As(err, &unrecorded) || errors.Is(err, ErrHandlerTimeout) {
		return false
	}
	return isConflict(err) || isLostConnection(err) || isInDoubt(err) && sqlState(err) == ""
}

// isLost: another session has the claim, or none has.
func isLost(err error) bool { return stateIn(err, "ID404", "ID409") || errors.Is(err, ErrLeaseLost) }

// again repeats a call while its error is one that a repetition cures.
func again(ctx context.Context, attempts int, call func() error) error {
	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil || attempt >= attempts || !isRetryable(err) || !pause(ctx, attempt) {
			return err
		}
	}
}

// pause answers false when the context has ended.
func pause(ctx context.Context, attempt int) bool {
	longest := min(10*time.Millisecond<<min(attempt, 10), time.Second)
	select {
	case <-time.After(longest/2 + rand.N(longest/2)):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
