package idempotency

import (
	"context"
	"net/http"
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

func withCurrent[Tx any](ctx context.Context, c *current[Tx]) context.Context {
	return context.WithValue(context.WithValue(ctx, infoKey{}, c.info), currentKey[Tx]{}, c)
}

// InfoOf says which request is being executed; it is empty where none is.
func InfoOf(ctx context.Context) Info {
	info, _ := ctx.Value(infoKey{}).(Info)
	return info
}

// TxOf gives the transaction of a transactional route: nothing elsewhere, and nothing on a route that
// runs unprotected because the database is away. The packages of drivers have it with its type.
func TxOf[Tx any](ctx context.Context) (tx Tx) {
	if c, ok := ctx.Value(currentKey[Tx]{}).(*current[Tx]); ok {
		tx = c.tx
	}
	return tx
}

// ClaimOf gives the claim of a leased route, nil elsewhere.
func ClaimOf[Tx any](ctx context.Context) *Claim[Tx] {
	if c, ok := ctx.Value(currentKey[Tx]{}).(*current[Tx]); ok {
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
// transaction's connection. Otherwise the answer is the handler's, if it writes one, else 500. It
// answers false where there is no middleware.
func Fail(ctx context.Context, err error) bool {
	f, ok := ctx.Value(failureKey{}).(*failure)
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

// HandlerFunc is a handler that may fail, which Fail is told.
type HandlerFunc func(http.ResponseWriter, *http.Request) error

func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f(w, r); err != nil && !Fail(r.Context(), err) {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}
