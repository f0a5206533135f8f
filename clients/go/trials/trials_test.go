// Package trials tries the module with what it does not depend on: chi's router and the driver lib/pq.
package trials

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	_ "github.com/lib/pq"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
	"postgres.example/idempotency/sqlidem"
)

func route(t *testing.T) idempotency.Route {
	return idempotency.Route{
		Principal: func(*http.Request) string { return t.Name() },
		Logger:    slog.New(slog.DiscardHandler),
		Exclude:   []string{"ts", `"a\"b"`},
	}
}

func TestChi(t *testing.T) {
	pool := try.Pool(t)
	store := pgxidem.New(pool)
	router := chi.NewRouter()
	router.Use(middleware.Recoverer, middleware.RequestID)
	// Of a router below another, Request.Pattern is a part; chi knows the whole.
	whole := route(t)
	whole.ScopeOf = func(r *http.Request) string {
		return r.Method + " " + chi.RouteContext(r.Context()).RoutePattern()
	}
	router.Route("/v1", func(r chi.Router) {
		r.With(store.Transactional(whole)).Post("/payments/{id}", func(w http.ResponseWriter, r *http.Request) {
			if scope := idempotency.InfoOf(r.Context()).Scope; scope != "POST /v1/payments/{id}" {
				t.Error(scope)
			}
			id := chi.URLParam(r, "id")
			if _, err := pgxidem.Tx(r.Context()).Exec(r.Context(), try.Effect, t.Name(), id); err != nil {
				idempotency.Fail(r.Context(), err)
				return
			}
			if id == "panic" {
				panic("no")
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, id)
		})
	})
	router.With(store.Transactional(route(t))).Post("/plain/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, idempotency.InfoOf(r.Context()).Scope)
	})
	server := httptest.NewServer(router)
	defer server.Close()
	try.Post(t, server.URL+"/plain/7", "k", `{}`).Check(t, 200, "POST /plain/{id}", false)
	try.Post(t, server.URL+"/v1/payments/7", "k", `{"ts": 1}`).Check(t, 201, "7", false)
	try.Post(t, server.URL+"/v1/payments/7", "k", `{"ts": 2}`).Check(t, 201, "7", true)
	try.Post(t, server.URL+"/v1/payments/8", "k", `{}`).CheckProblem(t, 422, "mismatch")
	try.Post(t, server.URL+"/v1/payments/panic", "p", `{}`).Check(t, 500, "", false)
	if try.Effects(t, pool) != "7" {
		t.Error(try.Effects(t, pool))
	}
}

func TestLibPQ(t *testing.T) {
	pool := try.Pool(t)
	db, err := sql.Open("postgres", "sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store := sqlidem.New(db)
	runs := 0
	handler := idempotency.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		runs++
		ctx := r.Context()
		if tx := sqlidem.Tx(ctx); tx != nil {
			if _, err := tx.ExecContext(ctx, try.Effect, t.Name(), "sql"); err != nil {
				return err
			}
			switch runs {
			case 1:
				_, err := tx.ExecContext(ctx, "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$")
				return err
			case 2:
				_, err := tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
				return err
			case 3:
				return errors.New("no")
			}
		}
		w.Header()["X-Two"] = []string{"a", "b"}
		_, err := w.Write([]byte("\x00\xff"))
		return err
	})
	mux := http.NewServeMux()
	mux.Handle("POST /transactional", store.Transactional(route(t))(handler))
	mux.Handle("POST /leased", store.Leased(route(t))(handler))
	server := httptest.NewServer(mux)
	defer server.Close()
	try.Post(t, server.URL+"/transactional", "k", `{"ts": 1}`).CheckProblem(t, 500, "internal")
	try.Post(t, server.URL+"/transactional", "k", `{"ts": 1}`).Check(t, 200, "\x00\xff", false)
	try.Post(t, server.URL+"/transactional", "k", `{"ts": 2}`).Check(t, 200, "\x00\xff", true)
	try.Post(t, server.URL+"/transactional", "k", `{"t": 2}`).CheckProblem(t, 422, "mismatch")
	try.Post(t, server.URL+"/leased", "k", `{}`).Check(t, 200, "\x00\xff", false)
	try.Post(t, server.URL+"/leased", "k", `{}`).Check(t, 200, "\x00\xff", true)
	if runs != 5 || try.Effects(t, pool) != "sql" {
		t.Error(runs, try.Effects(t, pool))
	}
}

// The driver's own words about a COMMIT of a transaction that has failed are no lost connection.
func TestLibPQWithAHiddenError(t *testing.T) {
	try.Pool(t)
	db, err := sql.Open("postgres", "sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	runs := 0
	first, err := idempotency.Once(t.Context(), sqlidem.New(db), "m", "inbox", t.Name(), func(ctx context.Context, tx *sql.Tx) error {
		runs++
		_, _ = tx.ExecContext(ctx, "SELECT 1/0")
		return nil
	})
	if first || err == nil || runs != 1 {
		t.Error(first, err, runs)
	}
}

// With PgBouncer in transaction mode, which ../test starts where it is installed. lib/pq otherwise asks
// twice for a statement with parameters, and the second may reach another session.
func TestLibPQBehindAPooler(t *testing.T) {
	port := os.Getenv("POOLER_PORT")
	if port == "" {
		t.Skip("POOLER_PORT names no pooler")
	}
	pool := try.Pool(t)
	db, err := sql.Open("postgres", "host=127.0.0.1 port="+port+" sslmode=disable binary_parameters=yes")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store := sqlidem.New(db)
	server := httptest.NewServer(store.Leased(route(t))(idempotency.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		_, err := idempotency.StepTx(r.Context(), sqlidem.ClaimOf(r.Context()), "step", func(ctx context.Context, tx *sql.Tx) (int, error) {
			_, err := tx.ExecContext(ctx, try.Effect, t.Name(), "x")
			return 1, err
		})
		return err
	})))
	defer server.Close()
	var all sync.WaitGroup
	for number := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := range 10 {
				key := fmt.Sprint(number, "-", round)
				try.Post(t, server.URL, key, `{}`).Check(t, 200, "", false)
				try.Post(t, server.URL, key, `{}`).Check(t, 200, "", true)
			}
		}()
	}
	all.Wait()
	if count := len(strings.Fields(try.Effects(t, pool))); count != 80 {
		t.Error(count)
	}
}
