package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

// The services that README.md and docs/recipes.md show.

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

type receipt struct{ ID string }

var errRefused = errors.New("the gateway refuses connections")

// sending is a gateway.
type sending func(key string, amount int) (receipt, error)

func (f sending) Send(_ context.Context, key string, amount int) (receipt, error) {
	return f(key, amount)
}

var gateway sending

func transfers(store *pgxidem.Store, route idempotency.Route) http.Handler {
	return store.Leased(route)(idempotency.HandlerFunc(transfer))
}

func transfer(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	claim := pgxidem.ClaimOf(ctx)
	sent, err := idempotency.Step(ctx, claim, "sent", func(ctx context.Context) (receipt, error) {
		return gateway.Send(ctx, claim.Derived("gateway"), 100) // the same key after a crash
	})
	switch {
	case errors.Is(err, errRefused): // before anything was sent
		return idempotency.NothingHappened(err)
	case errors.Is(err, context.DeadlineExceeded): // the gateway has it, or has it not
		if err := claim.Unknown(ctx, err, claim.Derived("gateway")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusGatewayTimeout)
		return nil
	case err != nil:
		return err
	}
	_, err = idempotency.StepTx(ctx, claim, "booked", func(ctx context.Context, tx pgx.Tx) (int64, error) {
		done, err := tx.Exec(ctx, "INSERT INTO booking (receipt) VALUES ($1)", sent.ID)
		return done.RowsAffected(), err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(sent)
}

func TestTheTransferThatIsShown(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	try.Exec(t, b.pool, "CREATE TABLE IF NOT EXISTS booking (receipt text)")
	try.Exec(t, b.pool, "DELETE FROM booking")
	server := httptest.NewServer(transfers(pgxidem.New(b.pool), b.uncertain()))
	defer server.Close()
	answers := []error{errRefused, nil}
	gateway = func(key string, amount int) (receipt, error) {
		err := answers[0]
		answers = answers[1:]
		return receipt{key}, err
	}
	try.Post(t, server.URL, "k", "{}").CheckProblem(t, http.StatusInternalServerError, "internal")
	b.due()
	first := try.Post(t, server.URL, "k", "{}")
	first.Check(t, http.StatusOK, first.Body, false)
	try.Post(t, server.URL, "k", "{}").Check(t, http.StatusOK, first.Body, true)

	answers = []error{context.DeadlineExceeded}
	try.Post(t, server.URL, "late", "{}").Check(t, http.StatusGatewayTimeout, "", false)
	b.checkUnknown("late", "context deadline exceeded",
		idempotency.Info{Key: "late", Scope: b.Name(), Principal: b.Name()}.Derived("gateway"))
	try.Post(t, server.URL, "late", "{}").CheckProblem(t, http.StatusConflict, "unknown")
	var count int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM booking").Scan(&count); err != nil || count != 1 {
		t.Error(count, err)
	}
}

func order(ctx context.Context, url string, saved func(key string) error) (*http.Response, error) {
	key := idempotency.NewKey()        // a UUID of version 7
	if err := saved(key); err != nil { // with the order: after a crash it is sent again under the same key
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"amount": 100}`))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return new(idempotency.Caller).Do(r, key)
}

func TestTheCallThatIsShown(t *testing.T) {
	keys := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := idempotency.ParseKey(r.Header.Get("Idempotency-Key"))
		if keys[key] = true; r.Header.Get("Content-Type") != "application/json" {
			t.Error(r.Header)
		}
	}))
	defer server.Close()
	var stored string
	response, err := order(t.Context(), server.URL, func(key string) error { stored = key; return nil })
	if err != nil || response.StatusCode != 200 || !keys[stored] || len(keys) != 1 {
		t.Error(response, err, keys)
	}
}

func mails(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	worker := pgxidem.Worker{Store: pgxidem.New(pool), Scope: "mails", Size: 4, Channel: "mails", Handler: mail}
	return worker.Run(ctx) // when ctx ends, it waits for the running handlers
}

func mail(ctx context.Context, work *pgxidem.Work) (*idempotency.Answer, error) {
	var order struct{ To string }
	if err := json.Unmarshal(work.Request, &order); err != nil {
		return &idempotency.Answer{Status: 422}, nil // never again
	}
	_, err := work.Tx.Exec(ctx, "INSERT INTO mail (recipient) VALUES ($1)", order.To)
	return nil, err // an error: rolled back, and due again after the pause of the policy
}

func TestTheWorkerThatIsShown(t *testing.T) {
	pool := try.Pool(t)
	try.Exec(t, pool, "CREATE TABLE IF NOT EXISTS mail (recipient text)")
	try.Exec(t, pool, "DELETE FROM mail")
	queue(t, pool, "m1", "mails", t.Name(), `{"to": "a"}`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mails(ctx, pool) }()
	found(t, pool, "mails", "completed")
	queue(t, pool, "m2", "mails", t.Name(), `[]`)
	try.Exec(t, pool, "NOTIFY mails")
	for range 1200 {
		var status int
		err := pool.QueryRow(t.Context(), "SELECT status_code FROM idempotency.records WHERE key = 'm2' AND status = 'completed'").Scan(&status)
		if err == nil && status == 422 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var list string
	if err := pool.QueryRow(t.Context(), "SELECT string_agg(recipient, ' ') FROM mail").Scan(&list); err != nil || list != "a" {
		t.Error(list, err)
	}
}

// The code of README.md is that of the tests, but for what concerns other modules.
func TestTheREADMEShowsWhatIsTested(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tested, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"### net/http", "## Work outside the database", "## Worker", "## Calling such a service"} {
		_, section, _ := strings.Cut(string(page), "\n"+title+"\n")
		code := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(section)
		functions := regexp.MustCompile(`(?ms)^func .*?^}$`).FindAllString(code[1], -1)
		for _, function := range functions {
			if !strings.Contains(string(tested), function) {
				t.Errorf("%s: this is not in readme_test.go:\n%s", title, function)
			}
		}
		if functions == nil {
			t.Error(title, "shows no function")
		}
	}
}
