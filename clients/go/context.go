package idempotency

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
)

// current is what a handler finds in its context.
type current[Tx any] struct {
	info  Info
	tx    Tx
	claim *Claim[Tx]
}

type (
	currentKey[Tx any] struct{}
	infoKey            struct{}
	failureKey         struct{}
)

// ContextName is the name by which TxOf and the others find the request's context in one that has it
// as a value: a *gin.Context, to which ginidem gives it.
const ContextName = "postgres.example/idempotency"

func valueOf(ctx context.Context, key any) any {
	if found := ctx.Value(key); found != nil {
		return found
	}
	if request, ok := ctx.Value(ContextName).(context.Context); ok {
		return request.Value(key)
	}
	return nil
}

func withCurrent[Tx any](ctx context.Context, c *current[Tx]) context.Context {
	return context.WithValue(context.WithValue(ctx, infoKey{}, c.info), currentKey[Tx]{}, c)
}

// InfoOf says which request is being executed; it is empty where none is.
func InfoOf(ctx context.Context) Info {
	info, _ := valueOf(ctx, infoKey{}).(Info)
	return info
}

// TxOf gives the transaction of a transactional route: nothing elsewhere, and nothing on a route that
// runs unprotected because the database is away. The packages of drivers have it with its type.
func TxOf[Tx any](ctx context.Context) (tx Tx) {
	if c, ok := valueOf(ctx, currentKey[Tx]{}).(*current[Tx]); ok {
		tx = c.tx
	}
	return tx
}

// ClaimOf gives the claim of a leased route, nil elsewhere.
func ClaimOf[Tx any](ctx context.Context) *Claim[Tx] {
	if c, ok := valueOf(ctx, currentKey[Tx]{}).(*current[Tx]); ok {
		return c.claim
	}
	return nil
}

// A failure is what a handler has reported by Fail.
type failure struct {
	mu  sync.Mutex
	err error
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Fail tells the middleware that the handler has failed: its transaction is rolled back, and the
// handler is run again if the error is a failure to serialize, a deadlock, or the loss of the
// transaction's connection. Otherwise the answer is the handler's, if it writes one, else 500. An
// answer from 400 to 499 that is to be kept is kept, without the work. It answers false where there is
// no middleware.
func Fail(ctx context.Context, err error) bool {
	f, ok := valueOf(ctx, failureKey{}).(*failure)
	if !ok || err == nil {
		return ok
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	return true
}

// A StatusError is an answer that a handler raises. HandlerFunc writes it. One of a status from 400 to
// 499, but 408, 425 and 429, is kept, and the handler's transaction is rolled back.
type StatusError struct {
	Status  int
	Message string
}

func (e *StatusError) Error() string { return strconv.Itoa(e.Status) + ": " + e.Message }

// HandlerFunc is a handler that may fail, which Fail is told.
type HandlerFunc func(http.ResponseWriter, *http.Request) error

func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil {
		return
	}
	raised, _ := w.(*recorder)
	var answers *StatusError
	if errors.As(err, &answers) && (raised == nil || !raised.hasBegun()) {
		http.Error(w, answers.Message, answers.Status)
		Fail(r.Context(), err)
	} else if !Fail(r.Context(), err) {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}
