// A project without the sources: a payment through each framework, and the same request again.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"postgres.example/idempotency"
	"postgres.example/idempotency/pgxidem"
	"postgres.example/idempotency/sqlidem"
)

const payment = "INSERT INTO payment VALUES (5)"

var user = "user=" + cmp.Or(os.Getenv("PGUSER"), "postgres")

var route = idempotency.Route{Principal: func(*http.Request) string { return "me" }}

type protection = func(http.Handler) http.Handler

// Each has POST /payments.
var services = map[string]func(protection) http.Handler{"http": withHTTP, "sql": withSQL}

func withHTTP(protect protection) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", protect(idempotency.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusCreated)
		return pay(r.Context())
	})))
	return mux
}

func withSQL(protection) http.Handler {
	db, err := sql.Open("pgx", user)
	if err != nil {
		log.Fatal(err)
	}
	return sqlidem.New(db).Transactional(route)(idempotency.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusCreated)
		_, err := sqlidem.Tx(r.Context()).ExecContext(r.Context(), payment)
		return err
	}))
}

func pay(ctx context.Context) error {
	_, err := pgxidem.Tx(ctx).Exec(ctx, payment)
	return err
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, user)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE payment (amount integer)"); err != nil {
		log.Fatal(err)
	}
	for name, service := range services {
		server := httptest.NewServer(service(pgxidem.New(pool).Transactional(route)))
		for _, replayed := range []string{"", "true"} {
			request, _ := http.NewRequest("POST", server.URL+"/payments", strings.NewReader("{}"))
			request.Header = http.Header{"Idempotency-Key": {name}, "Content-Type": {"application/json"}}
			answer, err := http.DefaultClient.Do(request)
			if err != nil || answer.StatusCode != http.StatusCreated || answer.Header.Get("Idempotent-Replayed") != replayed {
				log.Fatal(name, answer, err)
			}
		}
	}
	var paid int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM payment").Scan(&paid); err != nil || paid != len(services) {
		log.Fatal(paid, " payments of ", len(services), err)
	}
}
