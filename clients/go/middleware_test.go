package idempotency_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
	"postgres.example/idempotency/sqlidem"
)

// A bench is one of the drivers, with the route's middlewares.
type bench struct {
	*testing.T
	pool          *pgxpool.Pool
	transactional func(idempotency.Route) func(http.Handler) http.Handler
	leased        func(idempotency.Route) func(http.Handler) http.Handler
	exec          func(ctx context.Context, query string, args ...any) error // in the claim's transaction
	step          func(ctx context.Context, name, note string) (string, error)
	unknown       func(ctx context.Context, cause error, reference string) error
	once          func(id string, work func(ctx context.Context, exec func(query string, args ...any) error) error) (bool, error)
}

// withEach runs a test on each driver.
func withEach(t *testing.T, test func(*bench)) {
	t.Run("pgx", func(t *testing.T) {
		pool := try.Pool(t)
		store := pgxidem.New(pool)
		test(&bench{T: t, pool: pool, transactional: store.Transactional, leased: store.Leased,
			exec: func(ctx context.Context, query string, args ...any) error {
				_, err := pgxidem.Tx(ctx).Exec(ctx, query, args...)
				return err
			},
			step: func(ctx context.Context, name, note string) (string, error) {
				return step(ctx, pgxidem.ClaimOf(ctx), name, func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, try.Effect, t.Name(), note)
					return err
				})
			},
			unknown: func(ctx context.Context, cause error, reference string) error {
				return pgxidem.ClaimOf(ctx).Unknown(ctx, cause, reference)
			},
			once: func(id string, work func(context.Context, func(string, ...any) error) error) (bool, error) {
				return idempotency.Once(t.Context(), store, id, "inbox", t.Name(), func(ctx context.Context, tx pgx.Tx) error {
					return work(ctx, func(query string, args ...any) error {
						_, err := tx.Exec(ctx, query, args...)
						return err
					})
				})
			}})
	})
	t.Run("sql", func(t *testing.T) {
		pool := try.Pool(t)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { db.Close() })
		store := sqlidem.New(db)
		test(&bench{T: t, pool: pool, transactional: store.Transactional, leased: store.Leased,
			exec: func(ctx context.Context, query string, args ...any) error {
				_, err := sqlidem.Tx(ctx).ExecContext(ctx, query, args...)
				return err
			},
			step: func(ctx context.Context, name, note string) (string, error) {
				return step(ctx, sqlidem.ClaimOf(ctx), name, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, try.Effect, t.Name(), note)
					return err
				})
			},
			unknown: func(ctx context.Context, cause error, reference string) error {
				return sqlidem.ClaimOf(ctx).Unknown(ctx, cause, reference)
			},
			once: func(id string, work func(context.Context, func(string, ...any) error) error) (bool, error) {
				return idempotency.Once(t.Context(), store, id, "inbox", t.Name(), func(ctx context.Context, tx *sql.Tx) error {
					return work(ctx, func(query string, args ...any) error {
						_, err := tx.ExecContext(ctx, query, args...)
						return err
					})
				})
			}})
	})
}

func step[Tx any](ctx context.Context, claim *idempotency.Claim[Tx], name string,
	work func(context.Context, Tx) error) (string, error) {
	return idempotency.StepTx(ctx, claim, name, func(ctx context.Context, tx Tx) (string, error) {
		return fmt.Sprint(name, " of attempt ", claim.Attempt), work(ctx, tx)
	})
}

func (b *bench) route() idempotency.Route {
	return idempotency.Route{
		Principal: func(*http.Request) string { return b.Name() },
		Logger:    slog.New(slog.DiscardHandler),
	}
}

func (b *bench) effect(ctx context.Context, note string) error {
	return b.exec(ctx, try.Effect, b.Name(), note)
}

func (b *bench) effects() string { return try.Effects(b, b.pool) }

// serve answers POST /work with the handler, and gives its address.
func (b *bench) serve(protect func(http.Handler) http.Handler,
	handler func(http.ResponseWriter, *http.Request) error) string {
	mux := http.NewServeMux()
	mux.Handle("/work", protect(idempotency.HandlerFunc(handler)))
	server := httptest.NewServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	b.Cleanup(server.Close)
	return server.URL + "/work"
}

func TestAReplayIsTheFirstAnswer(t *testing.T) {
	withEach(t, func(b *bench) {
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			w.Header()["X-Two"] = []string{"a", "b, c"}
			w.Header().Set("X-Odd", "caf\xe9 é \x01")
			w.Header().Set("Set-Cookie", "session=1")
			w.Header().Set("Content-Type", "application/octet-stream")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("\x00\xff\r\n"))
			return b.effect(r.Context(), "paid")
		})
		first := try.Post(b, url, `"k"`, `{"a": 1, "b": [1.50]}`)
		first.Check(b, 201, "\x00\xff\r\n", false)
		if first.Header.Get("Set-Cookie") == "" {
			b.Error("the cookie is missing")
		}
		again := try.Post(b, url, `k`, `{"b":[1.5],"a":1e0}`)
		again.Check(b, 201, "\x00\xff\r\n", true)
		first.Header.Del("Set-Cookie")
		again.Header.Del("Idempotent-Replayed")
		if !reflect.DeepEqual(first.Header, again.Header) {
			b.Error(first.Header, again.Header)
		}
		try.Post(b, url, "k", `{"a":2}`).CheckProblem(b, 422, "mismatch")
		try.Post(b, url+"?dry_run=1", "k", `{"a": 1, "b": [1.50]}`).CheckProblem(b, 422, "mismatch")
		if b.effects() != "paid" {
			b.Error(b.effects())
		}
	})
}

func TestEmptyAnswers(t *testing.T) {
	withEach(t, func(b *bench) {
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.RawQuery == "204" {
				w.WriteHeader(http.StatusNoContent)
			}
			return nil
		})
		for _, c := range []struct {
			query  string
			status int
		}{{"", 200}, {"?204", 204}} {
			first := try.Post(b, url+c.query, "k"+c.query, `{}`)
			first.Check(b, c.status, "", false)
			again := try.Post(b, url+c.query, "k"+c.query, `{}`)
			again.Check(b, c.status, "", true)
			again.Header.Del("Idempotent-Replayed")
			if !reflect.DeepEqual(first.Header, again.Header) {
				b.Error(first.Header, again.Header)
			}
		}
	})
}

func TestOneOfManyExecutes(t *testing.T) {
	withEach(t, func(b *bench) {
		entered, open := make(chan struct{}), make(chan struct{})
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			close(entered) // a second time panics
			<-open
			return b.effect(r.Context(), "once")
		})
		var all sync.WaitGroup
		var held atomic.Int32
		post := func() {
			defer all.Done()
			if a := try.Post(b, url, "k", `{}`); a.Status == 409 {
				held.Add(1)
				a.CheckProblem(b, 409, "in-progress")
			} else {
				a.Check(b, 200, "", false)
			}
		}
		all.Add(1)
		go post()
		<-entered
		var others sync.WaitGroup
		for range 40 {
			all.Add(1)
			others.Add(1)
			go func() { defer others.Done(); post() }()
		}
		others.Wait()
		close(open)
		all.Wait()
		if held.Load() != 40 || b.effects() != "once" {
			b.Error(held.Load(), b.effects())
		}
	})
}

// Errors, 5xx and panics undo everything, and the key is free.
func TestWhatFailsIsUndone(t *testing.T) {
	withEach(t, func(b *bench) {
		var runs atomic.Int32
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			n := runs.Add(1)
			if err := b.effect(r.Context(), fmt.Sprint("run-", n)); err != nil {
				return err
			}
			switch n {
			case 1:
				return errors.New("no")
			case 2:
				w.WriteHeader(http.StatusBadGateway)
			case 3:
				panic(http.ErrAbortHandler)
			case 4:
				w.WriteHeader(http.StatusTooManyRequests)
			case 5:
				http.Error(w, "mine", http.StatusInternalServerError)
				return errors.New("no, with an answer")
			default:
				w.WriteHeader(http.StatusPaymentRequired) // an answer like others
			}
			return nil
		})
		try.Post(b, url, "k", `{}`).CheckProblem(b, 500, "internal")
		try.Post(b, url, "k", `{}`).Check(b, 502, "", false)
		if response, err := http.Post(url, "", nil); err != nil || response.StatusCode != 400 { // without a key
			b.Error(response, err)
		}
		try.Broken(b, url, "k", `{}`)
		try.Post(b, url, "k", `{}`).Check(b, 429, "", false)
		try.Post(b, url, "k", `{}`).Check(b, 500, "mine\n", false)
		try.Post(b, url, "k", `{}`).Check(b, 402, "", false)
		try.Post(b, url, "k", `{}`).Check(b, 402, "", true)
		if b.effects() != "run-6" {
			b.Error(b.effects())
		}
	})
}

func TestAConflictRunsTheHandlerAgain(t *testing.T) {
	withEach(t, func(b *bench) {
		for _, c := range []struct {
			conflicts int32
			raise     string
			status    int
		}{
			{2, "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$", 200},
			{4, "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END$$", 200},
			{5, "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$", 503},
			{1, "SELECT pg_terminate_backend(pg_backend_pid())", 200},
			{1, "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '23505'; END$$", 500},
		} {
			var runs atomic.Int32
			url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"x": 1}` {
					b.Error(string(body), err)
				}
				if runs.Add(1) <= c.conflicts {
					return b.exec(r.Context(), c.raise)
				}
				return nil
			})
			key := fmt.Sprint("k", c)
			if a := try.Post(b, url, idempotency.FormatKey(key), `{"x": 1}`); a.Status != c.status {
				b.Error(c, a)
			}
		}
	})
}

// A handler that hides a lost connection behind an answer of its own is run again all the same.
func TestALostConnectionCantBeHidden(t *testing.T) {
	withEach(t, func(b *bench) {
		var runs atomic.Int32
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			if runs.Add(1) == 1 {
				_ = b.exec(r.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
				w.WriteHeader(http.StatusInternalServerError)
				return nil
			}
			return b.effect(r.Context(), "done")
		})
		try.Post(b, url, "k", `{}`).Check(b, 200, "", false)
		if b.effects() != "done" {
			b.Error(b.effects())
		}
	})
}

func TestAnErrorOfTheTransactionCantBeAnswered(t *testing.T) {
	withEach(t, func(b *bench) {
		route, runs := b.route(), 0
		route.MissingKey = idempotency.Pass
		url := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) error {
			runs++
			_ = b.exec(r.Context(), "SELECT 1/0")
			w.WriteHeader(http.StatusCreated)
			return nil
		})
		for _, key := range []string{"k", ""} {
			try.Post(b, url, key, `{}`).CheckProblem(b, 500, "internal")
		}
		if runs != 2 {
			b.Error("it ran", runs, "times")
		}
	})
}

func TestMissingKeys(t *testing.T) {
	withEach(t, func(b *bench) {
		handler := func(w http.ResponseWriter, r *http.Request) error {
			_, _ = io.WriteString(w, idempotency.InfoOf(r.Context()).Key)
			return b.effect(r.Context(), "x")
		}
		with := func(choice idempotency.MissingKey) string {
			route := b.route()
			route.MissingKey = choice
			return b.serve(b.transactional(route), handler)
		}
		try.Post(b, with(idempotency.Refuse), "", `{}`).CheckProblem(b, 400, "missing-key")
		try.Post(b, with(idempotency.Pass), "", `{}`).Check(b, 200, "", false)
		generated := try.Post(b, with(idempotency.Generate), "", `{}`)
		if generated.Header.Get("Idempotency-Key") != idempotency.FormatKey(generated.Body) || len(generated.Body) != 36 {
			b.Error(generated)
		}
		url := with(idempotency.Derive)
		first := try.Post(b, url, "", `{"a": 1, "b": 2}`)
		first.Check(b, 200, first.Body, false)
		try.Post(b, url, "", `{"b": 2, "a": 1}`).Check(b, 200, first.Body, true)
		if other := try.Post(b, url, "", `{"b": 2, "a": 2}`); other.Body == first.Body {
			b.Error(other)
		}
		for _, choice := range []idempotency.MissingKey{idempotency.Refuse, idempotency.Pass, idempotency.Generate, idempotency.Derive} {
			url := with(choice)
			try.Post(b, url, " ", `{}`).CheckProblem(b, 400, "bad-key")
			try.Post(b, url, "a", `{}`, "Idempotency-Key", "b").CheckProblem(b, 400, "bad-key")
			try.Post(b, url, "a,b", `{}`).CheckProblem(b, 400, "bad-key")
		}
		if b.effects() != "x x x x" {
			b.Error(b.effects())
		}
	})
}

func TestConfiguredRoutes(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.KeyHeader, route.ReplayHeader, route.EchoKey = "X-Request-Key", "X-Replay", true
		route.Statuses = map[string]int{"mismatch": 400}
		route.Exclude = []string{"ts"}
		route.Keep = func(int) bool { return true }
		url := b.serve(b.transactional(route), func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusBadGateway)
			return nil
		})
		first := try.Post(b, url, "", `{"ts": 1}`, "X-Request-Key", "k")
		again := try.Post(b, url, "", `{"ts": 2}`, "X-Request-Key", "k")
		if first.Status != 502 || again.Status != 502 || again.Header.Get("X-Replay") != "true" ||
			again.Header.Get("X-Request-Key") != `"k"` {
			b.Error(first, again)
		}
		other := try.Post(b, url, "", `{"x": 2}`, "X-Request-Key", "k")
		other.CheckProblem(b, 400, "mismatch")
		if !strings.Contains(other.Body, `"status":400`) {
			b.Error(other.Body)
		}
	})
}

func TestFingerprintOption(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.Fingerprint = func(r *http.Request) []byte { return []byte(r.Header.Get("X-Order")) }
		url := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(w, r.Body)
			return err
		})
		try.Post(b, url, "k", `{"a":1}`, "X-Order", "7").Check(b, 200, `{"a":1}`, false)
		try.Post(b, url, "k", `{"a":2}`, "X-Order", "7").Check(b, 200, `{"a":1}`, true)
		try.Post(b, url, "k", `{"a":1}`, "X-Order", "8").CheckProblem(b, 422, "mismatch")
	})
}

func TestBodies(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.MaxRequestBytes = 10_000
		url := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(w, r.Body)
			return err
		})
		for _, bad := range []string{"{", `{"a":1}x`, "{\"a\":\"\xff\"}", `"\ud800"`, "{}\x00"} {
			try.Post(b, url, "k", bad).CheckProblem(b, 400, "bad-json")
		}
		try.Post(b, url, "k", strings.Repeat("[", 1200)+strings.Repeat("]", 1200)).CheckProblem(b, 413, "body-too-large")
		try.Post(b, url, "k", strings.Repeat(" ", 10_001)).CheckProblem(b, 413, "body-too-large")
		try.Post(b, url, "k", `{}`, "Content-Encoding", "gzip").CheckProblem(b, 415, "content-encoding")
		plain := func(body, mediaType string) try.Answer {
			r, _ := http.NewRequest("POST", url, strings.NewReader(body))
			r.Header["Idempotency-Key"] = []string{"plain"}
			if mediaType != "" {
				r.Header.Set("Content-Type", mediaType)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				b.Fatal(err)
			}
			defer response.Body.Close()
			content, _ := io.ReadAll(response.Body)
			return try.Answer{Status: response.StatusCode, Header: response.Header, Body: string(content)}
		}
		plain("\x00\xff", "Text/Plain; charset=utf-8").Check(b, 200, "\x00\xff", false)
		plain("\x00\xff", "text/plain").Check(b, 200, "\x00\xff", true)
		plain("\x00\xff", "").CheckProblem(b, 422, "mismatch")
		plain("\x00", "text/plain").CheckProblem(b, 422, "mismatch")
	})
}

// JSON that jsonb can't hold counts byte by byte.
func TestJSONThatJsonbRefuses(t *testing.T) {
	withEach(t, func(b *bench) {
		handler := func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(w, r.Body)
			return err
		}
		fingerprint := b.route()
		fingerprint.Fingerprint = func(r *http.Request) []byte { return []byte(r.URL.RawQuery) }
		for name, url := range map[string]string{
			"transactional": b.serve(b.transactional(b.route()), handler),
			"leased":        b.serve(b.leased(b.route()), handler),
		} {
			for i, pair := range [][2]string{{`"\u0000"`, `"\u0000 "`}, {"[1e400000]", "[1e400001]"}} {
				key := fmt.Sprint(name, i)
				try.Post(b, url, key, pair[0]).Check(b, 200, pair[0], false)
				try.Post(b, url, key, pair[0]).Check(b, 200, pair[0], true)
				try.Post(b, url, key, pair[1]).CheckProblem(b, 422, "mismatch")
			}
		}
		url := b.serve(b.transactional(fingerprint), handler)
		try.Post(b, url+"?one", "own", "[1e400000]").Check(b, 200, "[1e400000]", false)
		try.Post(b, url+"?one", "own", "[1e400001]").Check(b, 200, "[1e400000]", true)
		try.Post(b, url+"?two", "own", "[1e400000]").CheckProblem(b, 422, "mismatch")
	})
}

// A derived key is forgotten with its window, however long the policy keeps keys, and counts for a
// body that is not JSON, too.
func TestDerivedKeysAreForgottenWithTheirWindow(t *testing.T) {
	withEach(t, func(b *bench) {
		try.Exec(b, b.pool, "SELECT idem_policy_set($1, retention => '30 days')", b.Name())
		route := b.route()
		route.Scope, route.MissingKey, route.Window = b.Name(), idempotency.Derive, 500*time.Millisecond
		var runs atomic.Int32
		handler := func(w http.ResponseWriter, r *http.Request) error {
			_, err := fmt.Fprint(w, runs.Add(1), idempotency.InfoOf(r.Context()).Key)
			return err
		}
		for name, url := range map[string]string{
			"transactional": b.serve(b.transactional(route), handler), "leased": b.serve(b.leased(route), handler),
		} {
			for _, mediaType := range []string{"application/json", "text/plain"} {
				body := `"` + name + `"`
				post := func() try.Answer { return try.Post(b, url, "", body, "Content-Type", mediaType) }
				first := post()
				first.Check(b, 200, first.Body, false)
				next := post()
				for deadline := time.Now().Add(time.Minute); next.Body == first.Body && time.Now().Before(deadline); {
					next = post()
				}
				next.Check(b, 200, next.Body, false)
				if next.Body == first.Body || next.Body[1:] != first.Body[1:] ||
					first.Header.Get("Idempotency-Key") != idempotency.FormatKey(first.Body[1:]) {
					b.Error(first, next)
				}
			}
		}
	})
}

// A handler that is run again has the key that was derived for its first run.
func TestADerivedKeyOutlivesAConflict(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.MissingKey = idempotency.Derive
		keys := map[string]int{}
		url := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) error {
			key := idempotency.InfoOf(r.Context()).Key
			if keys[key]++; keys[key] == 1 {
				return b.exec(r.Context(), "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$")
			}
			_, err := io.WriteString(w, key)
			return err
		})
		first := try.Post(b, url, "", `{}`)
		first.Check(b, 200, first.Body, false)
		try.Post(b, url, "", `{}`).Check(b, 200, first.Body, true)
		if len(keys) != 1 || keys[first.Body] != 2 {
			b.Error(keys, first)
		}
	})
}

// What comes over the wire as it is, past a library that would tidy it up.
func TestRawRequests(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.MaxRequestBytes = 1000
		route.Principal = func(r *http.Request) string {
			if r.Header.Get("Authorization") == "" {
				return ""
			}
			return b.Name()
		}
		var runs atomic.Int32
		url := b.serve(b.transactional(route), func(w http.ResponseWriter, r *http.Request) error {
			runs.Add(1)
			return nil
		})
		const begin = "POST /work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		const known = begin + "Authorization: x\r\n"
		for _, c := range []struct {
			request string
			status  int
		}{
			{known + "Idempotency-Key: \"pc-1\"\r\nContent-Length: 2\r\n\r\n{}", 200},
			{known + "Idempotency-Key: \"pc%2D1\"\r\nContent-Length: 2\r\n\r\n{}", 200},
			{known + "Idempotency-Key: %22pc-1%22\r\nContent-Length: 2\r\n\r\n{}", 200},
			{known + "Idempotency-Key : \"x\"\r\nContent-Length: 2\r\n\r\n{}", 400},
			{known + "Idempotency-Key: \"x\"\r\nidempotency-key:\r\nContent-Length: 2\r\n\r\n{}", 400},
			{known + "Idempotency-Key:\r\nContent-Length: 2\r\n\r\n{}", 400},
			{known + "Idempotency-Key: \"caf\xe9\"\r\nContent-Length: 2\r\n\r\n{}", 400},
			{known + "Idempotency-Key: \"a\x00\"\r\nContent-Length: 2\r\n\r\n{}", 400},
			{known + "Idempotency-Key: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
			// No byte of these bodies is ever sent: the answer comes without.
			{begin + "Idempotency-Key: x\r\nContent-Length: 20\r\n\r\n", 401},
			{begin + "Idempotency-Key: x\r\nTransfer-Encoding: chunked\r\n\r\n", 401},
			{known + "Idempotency-Key: x\r\nContent-Length: 1001\r\n\r\n", 413},
			// Nor is the rest of this one.
			{known + "Idempotency-Key: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat(" ", 1001) + "\r\n", 413},
		} {
			if status := send(b, url, c.request); status != c.status {
				b.Errorf("%q: %d", c.request, status)
			}
		}
		if runs.Load() != 3 {
			b.Error(runs.Load(), "runs")
		}
	})
}

func send(t testing.TB, url, request string) int {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/work"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestLargeAnswers(t *testing.T) {
	withEach(t, func(b *bench) {
		large := strings.Repeat("0123456789", 300)
		handler := func(w http.ResponseWriter, r *http.Request) error {
			if err := b.effect(r.Context(), "x"); err != nil {
				return err
			}
			for i := 0; i < len(large); i += 100 {
				_, _ = io.WriteString(w, large[i:i+100])
				_ = http.NewResponseController(w).Flush()
			}
			return nil
		}
		route := b.route()
		route.MaxAnswerBytes = 1000
		url := b.serve(b.transactional(route), handler)
		try.Post(b, url, "refused", `{}`).CheckProblem(b, 500, "answer-too-large")
		if b.effects() != "" {
			b.Error(b.effects())
		}
		route.OmitLargeAnswers = true
		url = b.serve(b.transactional(route), handler)
		try.Post(b, url, "omitted", `{}`).Check(b, 200, large, false)
		again := try.Post(b, url, "omitted", `{}`)
		again.Check(b, 200, "", true)
		if again.Header.Get("Idempotent-Body") != "omitted" || again.Header.Get("Content-Type") != "" || b.effects() != "x" {
			b.Error(again, b.effects())
		}
	})
}

// Records that others have made.
func TestStoredByOthers(t *testing.T) {
	withEach(t, func(b *bench) {
		url := b.serve(b.transactional(b.route()), func(http.ResponseWriter, *http.Request) error { return errors.New("ran") })
		try.Exec(b, b.pool, "SELECT idem_begin('failed', scope => 'POST /work', principal => $1)", b.Name())
		try.Exec(b, b.pool, "SELECT idem_resolve('failed', 'fail', scope => 'POST /work', principal => $1)", b.Name())
		try.Post(b, url, "failed", `{}`).CheckProblem(b, 500, "failed")
		if a := try.Post(b, url, "failed", `{}`); a.Header.Get("Idempotent-Replayed") != "true" {
			b.Error(a)
		}
		try.Exec(b, b.pool, "SELECT idem_begin('done', scope => 'POST /work', principal => $1)", b.Name())
		try.Exec(b, b.pool, "SELECT idem_resolve('done', 'complete', scope => 'POST /work', principal => $1)", b.Name())
		try.Post(b, url, "done", `{}`).Check(b, 200, "", true)
		order := `{"items": "` + strings.Repeat("x", 60) + `"}`
		try.Exec(b, b.pool, "SELECT idem_policy_set($1, max_body_bytes => 60, on_large_body => 'omit')", "omit "+b.Name())
		route := b.route()
		route.Scope = "omit " + b.Name()
		url = b.serve(b.transactional(route), func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, err := io.WriteString(w, order)
			return err
		})
		try.Post(b, url, "k", `{}`).Check(b, 201, order, false)
		again := try.Post(b, url, "k", `{}`)
		again.Check(b, 201, "", true)
		if again.Header.Get("Idempotent-Body") != "omitted" || again.Header.Get("Content-Type") != "" {
			b.Error(again.Header)
		}
	})
}

func TestOtherMethodsPass(t *testing.T) {
	withEach(t, func(b *bench) {
		url := b.serve(b.transactional(b.route()), func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.WriteString(w, "passed")
			return err
		})
		response, err := http.Get(url)
		if err != nil || response.StatusCode != 200 {
			b.Error(response, err)
		}
	})
}

func TestHooks(t *testing.T) {
	withEach(t, func(b *bench) {
		var events []string
		hook := func(name string) idempotency.Hook {
			return func(_ context.Context, e idempotency.Event) {
				events = append(events, fmt.Sprint(name, e))
				panic("a hook's failure is none of the request's")
			}
		}
		route := b.route()
		route.OnExecute, route.OnReplay, route.OnRefusal = hook("execute"), hook("replay"), hook("refusal")
		url := b.serve(b.transactional(route), func(http.ResponseWriter, *http.Request) error { return nil })
		try.Post(b, url, "k", `{}`).Check(b, 200, "", false)
		try.Post(b, url, "k", `{}`).Check(b, 200, "", true)
		try.Post(b, url, "k", `{"a":1}`).CheckProblem(b, 422, "mismatch")
		try.Post(b, url, "", `{"a":1}`).CheckProblem(b, 400, "missing-key")
		want := []string{"execute{POST /work k 1 execute}", "replay{POST /work k 1 replay}",
			"refusal{POST /work k 1 mismatch}", "refusal{POST /work  0 missing_key}"}
		if !reflect.DeepEqual(events, want) {
			b.Error(events)
		}
	})
}

func TestARouteNeedsAPrincipal(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a route without a principal was made")
		}
	}()
	new(pgxidem.Store).Transactional(idempotency.Route{})
}
