package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

// The service that README.md and docs/recipes.md show.

func payments(pool *pgxpool.Pool, tenant func(*http.Request) string) http.Handler {
	store := pgxidem.New(pool)
	route := idempotency.Route{Principal: tenant} // func(*http.Request) string: "" is answered 401

	mux := http.NewServeMux()
	mux.Handle("POST /payments", store.Transactional(route)(idempotency.HandlerFunc(pay)))
	return mux
}

func pay(w http.ResponseWriter, r *http.Request) error {
	tx := pgxidem.Tx(r.Context()) // the transaction that holds the claim
	if _, err := tx.Exec(r.Context(), "INSERT INTO payment (amount) VALUES (100)"); err != nil {
		return err // rolls back; after a conflict, pay is run again
	}
	w.WriteHeader(http.StatusCreated)
	return nil // what was written is stored, commits with the payment, and is sent
}

func TestTheServiceThatIsShown(t *testing.T) {
	pool := try.Pool(t)
	try.Exec(t, pool, "CREATE TABLE IF NOT EXISTS payment (amount integer)")
	try.Exec(t, pool, "DELETE FROM payment")
	server := httptest.NewServer(payments(pool, func(*http.Request) string { return t.Name() }))
	defer server.Close()
	try.Post(t, server.URL+"/payments", "p1", "{}").Check(t, http.StatusCreated, "", false)
	try.Post(t, server.URL+"/payments", "p1", "{}").Check(t, http.StatusCreated, "", true)
	try.Post(t, server.URL+"/payments", "p1", "[]").CheckProblem(t, http.StatusUnprocessableEntity, "mismatch")
	var count int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM payment").Scan(&count); err != nil || count != 1 {
		t.Error(count, err)
	}
}
