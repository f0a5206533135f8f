// Package try has what the tests of this module and of its adapters have in common.
package try

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool connects to the database that PGHOST, PGPORT, PGUSER and PGDATABASE name, where the extension
// is installed, and makes an empty table effect (note text) in it. Each test has scopes of its own.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("PGHOST names no server")
	}
	pool, err := pgxpool.New(context.Background(), "pool_max_conns=20")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	Exec(t, pool, "CREATE EXTENSION IF NOT EXISTS idempotency")
	Exec(t, pool, "CREATE TABLE IF NOT EXISTS effect_of_test (test text, note text)")
	Exec(t, pool, "DELETE FROM effect_of_test WHERE test = $1", t.Name())
	Exec(t, pool, "DELETE FROM idempotency.record WHERE principal = $1", t.Name())
	return pool
}

// Effect is the statement by which handlers have one; its arguments are t.Name() and a note.
const Effect = "INSERT INTO effect_of_test VALUES ($1, $2)"

func Exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// Effects are the notes that have been committed, in order.
func Effects(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	var notes string
	err := pool.QueryRow(context.Background(),
		"SELECT coalesce(string_agg(note, ' ' ORDER BY note), '') FROM effect_of_test WHERE test = $1",
		t.Name()).Scan(&notes)
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

// An Answer as a client sees it.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Post sends JSON, unless a field says otherwise; fields are names and values in turn.
func Post(t testing.TB, url, key, body string, fields ...string) Answer {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header[fields[i]] = append(r.Header[fields[i]], fields[i+1])
	}
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return Answer{}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	response.Header.Del("Date")
	return Answer{response.StatusCode, response.Header, string(content)}
}

// Broken posts and gets no answer, since the handler panics. The connection is a new one, for net/http
// sends a request with a key again where one that it has used before breaks.
func Broken(t testing.TB, url, key, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	fresh := &http.Transport{DisableKeepAlives: true}
	if response, err := fresh.RoundTrip(r); err == nil {
		response.Body.Close()
		t.Error("the panic did not reach the server", response.Status)
	}
}

// Check compares status and body, and whether the answer is a replay.
func (a Answer) Check(t testing.TB, status int, body string, replayed bool) {
	t.Helper()
	if a.Status != status || a.Body != body || (a.Header.Get("Idempotent-Replayed") == "true") != replayed {
		t.Errorf("got %d %q %v; want %d %q, replayed %v", a.Status, a.Body, a.Header, status, body, replayed)
	}
}

// CheckProblem compares the status and the last word of the problem's type.
func (a Answer) CheckProblem(t testing.TB, status int, word string) {
	t.Helper()
	if a.Status != status || a.Header.Get("Content-Type") != "application/problem+json" ||
		!strings.Contains(a.Body, "/problems/idempotency/"+word+`"`) {
		t.Errorf("got %d %q %v; want the problem %d %s", a.Status, a.Body, a.Header, status, word)
	}
}
