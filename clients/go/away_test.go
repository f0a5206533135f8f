package idempotency_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

// nowhere is a store whose database is at an address that takes connections and says nothing, or at
// one that refuses them.
func nowhere(t *testing.T, silent bool) *pgxidem.Store {
	port := "1" // no other process gets it by chance
	if silent {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		_, port, _ = net.SplitHostPort(listener.Addr().String())
	}
	pool, err := pgxpool.New(context.Background(), "host=127.0.0.1 port="+port+" sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgxidem.New(pool)
	store.DatabaseTimeout = 200 * time.Millisecond
	return store
}

func TestTheDatabaseAway(t *testing.T) {
	for name, silent := range map[string]bool{"refuses": false, "is silent": true} {
		t.Run(name, func(t *testing.T) {
			b := &bench{T: t}
			store := nowhere(t, silent)
			var runs atomic.Int32
			handler := func(w http.ResponseWriter, r *http.Request) error {
				runs.Add(1)
				if pgxidem.Tx(r.Context()) != nil {
					t.Error("there is a transaction")
				}
				return nil
			}
			for _, url := range []string{
				b.serve(store.Transactional(b.route()), handler), b.serve(store.Leased(b.route()), handler),
			} {
				a := try.Post(t, url, "k", `{}`)
				a.CheckProblem(t, 503, "unavailable")
				if a.Header.Get("Retry-After") != "1" || runs.Load() != 0 {
					t.Error(a, runs.Load())
				}
				try.Post(t, url, "", `{}`).CheckProblem(t, 400, "missing-key")
			}
			route := b.route()
			route.Statuses = map[string]int{"unavailable": 500}
			route.MissingKey = idempotency.Derive
			try.Post(t, b.serve(store.Transactional(route), handler), "", `{}`).CheckProblem(t, 500, "unavailable")
			if runs.Load() != 0 {
				t.Error(runs.Load())
			}
			route.UnprotectedWithoutDatabase = true
			try.Post(t, b.serve(store.Transactional(route), handler), "k", `{}`).Check(t, 200, "", false)
			try.Post(t, b.serve(store.Leased(route), handler), "", `{}`).Check(t, 200, "", false)
			if runs.Load() != 2 {
				t.Error(runs.Load())
			}
		})
	}
}
