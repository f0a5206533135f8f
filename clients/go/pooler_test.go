package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

// With PgBouncer in transaction mode, which ./test starts where it is installed.
func TestBehindAPooler(t *testing.T) {
	port := os.Getenv("POOLER_PORT")
	if port == "" {
		t.Skip("POOLER_PORT names no pooler")
	}
	b := &bench{T: t, pool: try.Pool(t)}
	pooled, err := pgxpool.New(t.Context(), "host=127.0.0.1 port="+port+" sslmode=disable default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Close()
	store := pgxidem.New(pooled)
	urls := []string{
		b.serve(store.Transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			_, err := pgxidem.Tx(r.Context()).Exec(r.Context(), try.Effect, t.Name(), "x")
			return err
		}),
		b.serve(store.Leased(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			_, err := step(r.Context(), pgxidem.ClaimOf(r.Context()), "step", func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, try.Effect, t.Name(), "x")
				return err
			})
			return err
		}),
	}
	var all sync.WaitGroup
	for number := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := range 10 {
				for kind, url := range urls {
					key := fmt.Sprint(number, "-", round, "-", kind)
					try.Post(t, url, key, `{}`).Check(t, 200, "", false)
					try.Post(t, url, key, `{}`).Check(t, 200, "", true)
				}
			}
		}()
	}
	all.Wait()
	var count int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM effect_of_test WHERE test = $1", t.Name()).Scan(&count); err != nil || count != 160 {
		t.Error(count, err)
	}
}
