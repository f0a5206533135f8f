package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

// Steps are done once, whatever becomes of the attempt, and give their results to the next.
func TestStepsAreDoneOnce(t *testing.T) {
	withEach(t, func(b *bench) {
		try.Exec(b, b.pool, "SELECT idem_policy_set($1, retry_base => '1 us', retry_cap => '1 us')", b.Name())
		route := b.route()
		route.Scope = b.Name()
		var runs atomic.Int32
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			n := runs.Add(1)
			one, err := b.step(r.Context(), "one", "one")
			if err != nil {
				return err
			}
			if n == 1 {
				w.WriteHeader(http.StatusBadGateway)
				return nil
			}
			two, err := b.step(r.Context(), "two", "two")
			if err != nil {
				return err
			}
			if n == 2 {
				return errors.New("after the second")
			}
			if n == 3 {
				panic(http.ErrAbortHandler)
			}
			_, err = fmt.Fprint(w, one, ", ", two)
			return err
		})
		try.Post(b, url, "k", `{}`).Check(b, 502, "", false)
		b.due()
		try.Post(b, url, "k", `{}`).CheckProblem(b, 500, "internal")
		b.due()
		try.Broken(b, url, "k", `{}`)
		b.due()
		try.Post(b, url, "k", `{}`).Check(b, 200, "one of attempt 1, two of attempt 2", false)
		try.Post(b, url, "k", `{}`).Check(b, 200, "one of attempt 1, two of attempt 2", true)
		if b.effects() != "one two" {
			b.Error(b.effects())
		}
	})
}

// due waits until the claim of an attempt that has failed is retryable, and its pause over: what a
// handler that panicked leaves is written while its client reads of the broken connection.
func (b *bench) due() {
	b.until("SELECT status = 'retryable' AND pg_sleep(0.001) IS NOT NULL FROM idem_get('k', scope => $1, principal => $1)")
}

func (b *bench) until(query string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for {
		var reached bool
		if err := b.pool.QueryRow(ctx, query, b.Name()).Scan(&reached); err != nil {
			b.Fatal(err)
		} else if reached {
			return
		}
	}
}

// An operator takes the claim away: the work is told, stores nothing, and its client is told 409.
func TestALostLease(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.Scope = b.Name()
		route.Lease = 300 * time.Millisecond
		lost := make(chan idempotency.Event, 2)
		route.OnLeaseLost = func(_ context.Context, e idempotency.Event) { lost <- e }
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			ctx := r.Context()
			try.Exec(b, b.pool, "SELECT idem_resolve('k', 'complete', scope => $1, principal => $1, status_code => 200, body => 'found')", b.Name())
			<-ctx.Done()
			if context.Cause(ctx) != idempotency.ErrLeaseLost {
				b.Error(context.Cause(ctx))
			}
			if _, err := b.step(ctx, "late", "late"); !errors.Is(err, idempotency.ErrLeaseLost) {
				b.Error(err)
			}
			_, err := io.WriteString(w, "late")
			return err
		})
		try.Post(b, url, "k", `{}`).CheckProblem(b, 409, "in-progress")
		try.Post(b, url, "k", `{}`).Check(b, 200, "found", true)
		if e := <-lost; e.Key != "k" || e.Attempt != 1 || len(lost) > 0 || b.effects() != "" {
			b.Error(e, len(lost), b.effects())
		}
	})
}

// A holder that learns of its loss when it completes.
func TestALateHolder(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.Scope = b.Name()
		lost := make(chan idempotency.Event, 2)
		route.OnLeaseLost = func(_ context.Context, e idempotency.Event) { lost <- e }
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			try.Exec(b, b.pool, "SELECT idem_resolve('k', 'fail', scope => $1, principal => $1)", b.Name())
			if r.URL.RawQuery == "fails" {
				return errors.New("late")
			}
			return nil
		})
		try.Post(b, url, "k", `{}`).CheckProblem(b, 409, "in-progress")
		try.Post(b, url, "k", `{}`).CheckProblem(b, 500, "failed")
		try.Post(b, url+"?fails", "k", `{}`).CheckProblem(b, 422, "mismatch")
		try.Exec(b, b.pool, "SELECT idem_forget('k', scope => $1, principal => $1)", b.Name())
		try.Post(b, url+"?fails", "k", `{}`).CheckProblem(b, 409, "in-progress")
		if len(lost) != 2 {
			b.Error(len(lost))
		}
	})
}

// faulty is a pool some of whose statements fail.
type faulty struct {
	pgxidem.Pool
	query func(sql string) error
	begin func() error
}

type failed struct{ error }

func (f failed) Scan(...any) error { return f.error }

func (f *faulty) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if f.query != nil {
		if err := f.query(sql); err != nil {
			return failed{err}
		}
	}
	return f.Pool.QueryRow(ctx, sql, args...)
}

func (f *faulty) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if f.begin != nil {
		if err := f.begin(); err != nil {
			return nil, err
		}
	}
	return f.Pool.Acquire(ctx)
}

var errCut = errors.New("the connection is cut")

// The first beat is lost: the next keeps the lease, and no other session takes over.
func TestALostBeatKeepsTheLease(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	var beats atomic.Int32
	second := make(chan struct{})
	store := pgxidem.New(&faulty{Pool: b.pool, query: func(sql string) error {
		if strings.Contains(sql, "idem_extend") {
			switch beats.Add(1) {
			case 1:
				return errCut
			case 3: // so the second has been granted
				close(second)
			}
		}
		return nil
	}})
	route := b.route()
	route.Scope = b.Name()
	route.Lease = 2 * time.Second
	url := b.serve(store.Leased(route), func(w http.ResponseWriter, r *http.Request) error {
		select {
		case <-second:
		case <-r.Context().Done():
			t.Error(context.Cause(r.Context()))
		}
		return nil
	})
	try.Post(b, url, "k", `{}`).Check(b, 200, "", false)
	try.Post(b, url, "k", `{}`).Check(b, 200, "", true)
}

// The answer to idem_complete is lost: it is asked for again, and stored once.
func TestALostCompletion(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	var tries atomic.Int32
	store := pgxidem.New(&faulty{Pool: b.pool, query: func(sql string) error {
		if strings.Contains(sql, "idem_complete") && tries.Add(1) <= 7 {
			return errCut
		}
		return nil
	}})
	var runs atomic.Int32
	url := b.serve(store.Leased(b.route()), func(w http.ResponseWriter, r *http.Request) error {
		_, err := fmt.Fprint(w, runs.Add(1))
		return err
	})
	try.Post(b, url, "k", `{}`).Check(b, 200, "1", false)
	try.Post(b, url, "k", `{}`).Check(b, 200, "1", true)
}

// COMMIT is done and its answer lost: the record says so, and the work is not done again. Where it was
// not done, the work is.
func TestALostCommit(t *testing.T) {
	for name, c := range map[string]struct {
		fate       try.Fate
		done, late bool
	}{
		"done": {try.CutAfter, true, false}, "not done": {try.Cut, false, false},
		"done and silent": {try.MuteAfter, true, true}, "silent": {try.Mute, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{T: t, pool: try.Pool(t)}
			wire := try.Through(t, "default_query_exec_mode=exec")
			var commits, runs atomic.Int32
			wire.Decide(func(sent []byte) try.Fate {
				if bytes.Contains(sent, []byte("COMMIT")) && commits.Add(1) == 1 {
					return c.fate
				}
				return try.Pass
			})
			store := pgxidem.New(wire.Pool)
			if c.late {
				store.DatabaseTimeout = time.Second
			}
			url := b.serve(store.Transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
				if pgxidem.Tx(r.Context()).Commit(r.Context()) == nil {
					t.Error("a handler could commit")
				}
				_, err := pgxidem.Tx(r.Context()).Exec(r.Context(), try.Effect, t.Name(), fmt.Sprint(runs.Add(1)))
				return err
			})
			want := "2"
			if c.done {
				want = "1"
			}
			try.Post(b, url, "k", `{}`).Check(b, 200, "", c.done)
			if b.effects() != want {
				t.Error(b.effects())
			}
		})
	}
}

// The handler has run, whether its transaction was committed is not known, and then the database is
// away: no option lets it run again without a claim.
func TestADoubtIsNotRunUnprotected(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	var runs atomic.Int32
	wire := try.Through(t, "default_query_exec_mode=exec")
	wire.Decide(func(sent []byte) try.Fate {
		if bytes.Contains(sent, []byte("COMMIT")) {
			return try.CutAfter
		}
		return try.Pass
	})
	store := pgxidem.New(&faulty{Pool: wire.Pool, begin: func() error {
		if runs.Load() > 0 {
			return errCut
		}
		return nil
	}})
	route := b.route()
	route.UnprotectedWithoutDatabase = true
	url := b.serve(store.Transactional(route), func(http.ResponseWriter, *http.Request) error {
		runs.Add(1)
		return nil
	})
	try.Post(b, url, "k", `{}`).CheckProblem(b, 503, "unavailable")
	if runs.Load() != 1 {
		t.Error(runs.Load())
	}
}

// The client goes away: leased work goes on, and its answer waits for the client's next try.
func TestLeasedWorkOutlivesItsClient(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.Scope = b.Name()
		entered := make(chan struct{})
		var outer context.Context
		protected := b.leased(route)
		protect := func(next http.Handler) http.Handler {
			inner := protected(next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if outer == nil {
					outer = r.Context()
				}
				inner.ServeHTTP(w, r)
			})
		}
		url := b.serve(protect, func(w http.ResponseWriter, r *http.Request) error {
			close(entered)
			<-outer.Done()
			if r.Context().Err() != nil {
				b.Error("the work's context has ended with its client")
			}
			_, err := io.WriteString(w, "done")
			return err
		})
		ctx, leave := context.WithCancel(b.Context())
		r, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{}`))
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Content-Type", "application/json")
		go func() {
			<-entered
			leave()
		}()
		if _, err := http.DefaultClient.Do(r); err == nil {
			b.Error("there is an answer")
		}
		b.until("SELECT status = 'completed' FROM idem_get('k', scope => $1, principal => $1)")
		try.Post(b, url, "k", `{}`).Check(b, 200, "done", true)
	})
}
