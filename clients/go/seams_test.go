package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
	"postgres.example/idempotency/sqlidem"
)

// What a goroutine writes after its handler has returned is in neither answer.
func TestLateWrites(t *testing.T) {
	withEach(t, func(b *bench) {
		var writing sync.WaitGroup
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			writing.Add(1)
			go func() {
				defer writing.Done()
				for range 2000 {
					if _, err := io.WriteString(w, "late"); errors.Is(err, idempotency.ErrReturned) {
						return
					}
					w.Header().Set("X-Late", "1")
				}
			}()
			return nil
		})
		for i := range 10 {
			key := fmt.Sprint("k", i)
			first := try.Post(b, url, key, `{}`)
			first.Check(b, 200, first.Body, false)
			try.Post(b, url, key, `{}`).Check(b, 200, first.Body, true)
		}
		writing.Wait()
	})
}

// The work of an answer that is raised is undone, and the answer kept; one that is written commits.
func TestRaisedAnswers(t *testing.T) {
	withEach(t, func(b *bench) {
		var runs atomic.Int32
		handler := func(w http.ResponseWriter, r *http.Request) error {
			note := fmt.Sprint(r.URL.RawQuery, runs.Add(1))
			if err := b.effect(r.Context(), note); err != nil {
				return err
			}
			switch r.URL.RawQuery {
			case "written":
				http.Error(w, note, http.StatusConflict)
			case "raised":
				http.Error(w, note, http.StatusConflict)
				return errors.New("no funds")
			case "raised-by-the-database":
				http.Error(w, note, http.StatusConflict)
				return b.exec(r.Context(), "SELECT 1/0")
			case "later":
				http.Error(w, note, http.StatusTooManyRequests)
				return errors.New("not now")
			case "nothing":
				http.Error(w, note, http.StatusConflict)
				return idempotency.NothingHappened(errors.New("not now"))
			}
			return nil
		}
		route := b.route()
		route.MissingKey = idempotency.Pass
		url := b.serve(b.transactional(route), handler)
		for _, way := range []string{"written", "raised", "raised-by-the-database"} {
			first := try.Post(b, url+"?"+way, way, `{}`)
			first.Check(b, 409, first.Body, false)
			try.Post(b, url+"?"+way, way, `{}`).Check(b, 409, first.Body, true)
		}
		for _, c := range []struct {
			way    string
			status int
		}{{"later", 429}, {"nothing", 409}} {
			for range 2 { // both are executed
				a := try.Post(b, url+"?"+c.way, c.way, `{}`)
				a.Check(b, c.status, a.Body, false)
			}
		}
		a := try.Post(b, url+"?raised", "", `{}`)
		a.Check(b, 409, a.Body, false)
		if b.effects() != "written1" || runs.Load() != 8 {
			b.Error(b.effects(), runs.Load())
		}
	})
}

func TestRaisedAnswersOfLeasedRoutes(t *testing.T) {
	withEach(t, func(b *bench) {
		runs := 0
		url := b.serve(b.leased(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			runs++
			http.Error(w, "declined", http.StatusPaymentRequired)
			return errors.New("declined")
		})
		try.Post(b, url, "k", `{}`).Check(b, 402, "declined\n", false)
		try.Post(b, url, "k", `{}`).Check(b, 402, "declined\n", true)
		if runs != 1 {
			b.Error(runs)
		}
	})
}

// A handler that never returns, and one that obeys its context: the client is answered at the deadline,
// the transaction is rolled back, the connection given back, and the key is free.
func TestADeadline(t *testing.T) {
	withEach(t, func(b *bench) {
		for _, obeys := range []bool{true, false} {
			t.Run(fmt.Sprint("obeys ", obeys), func(t *testing.T) {
				release, ended := make(chan struct{}), make(chan error, 10)
				route := b.route()
				route.Scope = fmt.Sprint(t.Name(), obeys)
				patient := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) error {
					return b.effect(r.Context(), "after")
				})
				route.HandlerTimeout = time.Second
				url := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) (err error) {
					defer func() { ended <- err }()
					ctx := r.Context()
					if err := b.effect(ctx, "slow"); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					<-ctx.Done()
					if context.Cause(ctx) != idempotency.ErrHandlerTimeout {
						t.Error(context.Cause(ctx))
					}
					if !obeys {
						<-release
					}
					_, err = io.WriteString(w, "late")
					return errors.Join(err, b.effect(context.WithoutCancel(ctx), "late"), ctx.Err())
				})
				for range 2 {
					try.Post(b, url, "k", `{}`).CheckProblem(b, 503, "handler-late")
				}
				b.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND $1 <> ''")
				close(release)
				for range 2 {
					if err := <-ended; !obeys && !errors.Is(err, idempotency.ErrReturned) {
						t.Error(err)
					}
				}
				try.Post(b, patient, "k", `{}`).Check(b, 200, "", false)
			})
		}
		if b.effects() != "after after" {
			b.Error(b.effects())
		}
	})
}

// A statement that runs for ever, with a context of its own, is cancelled on the server.
func TestADeadlineCancelsStatements(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	store := pgxidem.New(b.pool)
	route := b.route()
	route.HandlerTimeout = 100 * time.Millisecond
	ended := make(chan error)
	url := b.serve(store.Transactional(route), func(w http.ResponseWriter, r *http.Request) error {
		tx := pgxidem.Tx(r.Context())
		_, err := tx.Exec(context.WithoutCancel(r.Context()), "SELECT pg_sleep(600) /* "+b.Name()+" */")
		ended <- err
		if _, err := tx.Exec(context.Background(), "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
		return err
	})
	try.Post(b, url, "k", `{}`).CheckProblem(b, 503, "handler-late")
	if err := <-ended; err == nil {
		t.Error("it has ended by itself")
	}
	b.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600) /* ' || $1 || '%' AND state = 'active' AND pid <> pg_backend_pid()")
}

func TestADeadlineOfLeasedWork(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.uncertain()
		route.HandlerTimeout = 100 * time.Millisecond
		release := make(chan struct{})
		defer close(release)
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			<-release
			return nil
		})
		try.Post(b, url, "k", `{}`).CheckProblem(b, 503, "handler-late")
		try.Post(b, url, "k", `{}`).CheckProblem(b, 409, "unknown")
	})
}

func TestOptionsThatCantBeMeant(t *testing.T) {
	store := new(pgxidem.Store)
	store.DatabaseTimeout = time.Second
	for name, change := range map[string]func(*idempotency.Route){
		"MissingKey":      func(r *idempotency.Route) { r.MissingKey = 4 },
		"Window":          func(r *idempotency.Route) { r.Window = -1 },
		"TTL":             func(r *idempotency.Route) { r.TTL = -1 },
		"Lease":           func(r *idempotency.Route) { r.Lease = -1 },
		"Wait":            func(r *idempotency.Route) { r.Wait = -1 },
		"HandlerTimeout":  func(r *idempotency.Route) { r.HandlerTimeout = -1 },
		"Attempts":        func(r *idempotency.Route) { r.Attempts = -1 },
		"MaxRequestBytes": func(r *idempotency.Route) { r.MaxRequestBytes = -1 },
		"MaxAnswerBytes":  func(r *idempotency.Route) { r.MaxAnswerBytes = -1 },
		"an outcome":      func(r *idempotency.Route) { r.Statuses = map[string]int{"in-progress": 425} },
		"a status":        func(r *idempotency.Route) { r.Statuses = map[string]int{"in_progress": 200} },
		"KeyHeader":       func(r *idempotency.Route) { r.KeyHeader = "Idempotency Key" },
		"Methods":         func(r *idempotency.Route) { r.Methods = []string{} },
		"method":          func(r *idempotency.Route) { r.Methods = []string{"post"} },
		"Exclude":         func(r *idempotency.Route) { r.Exclude = []string{""} },
		"Scope":           func(r *idempotency.Route) { r.Scope, r.ScopeOf = "x", func(*http.Request) string { return "" } },
	} {
		route := idempotency.Route{Principal: func(*http.Request) string { return "x" }}
		change(&route)
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "idempotency: ") {
					t.Error(name, "is accepted:", err)
				}
			}()
			store.Transactional(route)
		}()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a store without a timeout is accepted")
			}
		}()
		new(sqlidem.Store).Leased(idempotency.Route{Principal: func(*http.Request) string { return "x" }})
	}()
	_, err := idempotency.Transactionally(t.Context(), store, idempotency.Request{Key: "k", Wait: -1},
		func(context.Context, pgx.Tx) (int, error) { return 0, nil })
	if err == nil {
		t.Error("a Request that waits for less than nothing is accepted")
	}
}

// Wait may be longer than the store's timeout.
func TestALongWait(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	patient, store := pgxidem.New(b.pool), pgxidem.New(b.pool)
	store.DatabaseTimeout = 500 * time.Millisecond
	route := b.route()
	route.Wait = time.Minute
	entered, open := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) error {
		close(entered)
		<-open
		return nil
	}
	for name, protect := range map[string][2]func(http.Handler) http.Handler{
		"transactional": {patient.Transactional(route), store.Transactional(route)}, "leased": {patient.Leased(route), store.Leased(route)},
	} {
		entered, open = make(chan struct{}), make(chan struct{})
		first := make(chan try.Answer)
		go func() { first <- try.Post(b, b.serve(protect[0], handler), name, `{}`) }()
		<-entered
		time.AfterFunc(time.Second, func() { close(open) })
		try.Post(b, b.serve(protect[1], handler), name, `{}`).Check(b, 200, "", true)
		(<-first).Check(b, 200, "", false)
	}
}

// How often a request waits for the database before its answer: a transaction of three statements by
// hand waits three times.
func TestWaits(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	for _, mode := range []string{"cache_statement", "cache_describe", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			wire := try.Through(t, "default_query_exec_mode="+mode)
			store := pgxidem.New(wire.Pool)
			route := b.route()
			route.Scope = t.Name()
			var answered int64
			counted := func(protect func(http.Handler) http.Handler) func(http.Handler) http.Handler {
				return func(next http.Handler) http.Handler {
					protected := protect(next)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						protected.ServeHTTP(w, r)
						answered = wire.Waits()
					})
				}
			}
			transactional := b.serve(counted(store.Transactional(route)), func(w http.ResponseWriter, r *http.Request) error {
				_, err := pgxidem.Tx(r.Context()).Exec(r.Context(), "INSERT INTO effect_of_test VALUES ('', '')")
				return err
			})
			leased := b.serve(counted(store.Leased(route)), func(w http.ResponseWriter, r *http.Request) error {
				for _, name := range []string{"a", "b"} {
					_, err := idempotency.Step(r.Context(), pgxidem.ClaimOf(r.Context()), name,
						func(context.Context) (int, error) { return 1, nil })
					if err != nil {
						return err
					}
				}
				return nil
			})
			post := func(url, key string) int64 {
				b.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND $1 <> ''")
				wire.Waits()
				if a := try.Post(b, url, mode+key, `{}`); a.Status != 200 {
					t.Error(a)
				}
				return answered
			}
			// A connection that has not been used before prepares its statements first.
			least := [4]int64{99, 99, 99, 99}
			for i := range 5 {
				key := fmt.Sprint(i)
				found := [4]int64{post(transactional, key), post(transactional, key), post(leased, "l"+key), post(leased, "l"+key)}
				for kind, waits := range found {
					least[kind] = min(least[kind], waits)
				}
			}
			if least != [4]int64{3, 1, 4, 1} {
				t.Error(least)
			}
		})
	}
}

// A replay's ROLLBACK comes after its answer, and delays no other request with the key.
func TestManyReplays(t *testing.T) {
	withEach(t, func(b *bench) {
		url := b.serve(b.transactional(b.route()), func(http.ResponseWriter, *http.Request) error { return nil })
		try.Post(b, url, "k", `{}`).Check(b, 200, "", false)
		for range 200 {
			try.Post(b, url, "k", `{}`).Check(b, 200, "", true)
		}
	})
}
