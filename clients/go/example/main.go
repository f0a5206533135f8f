// The server of the conformance suite, clients/conformance/README.md: each route is one line, and all
// of them have one handler.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/pgxidem"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	claims, own := connect(ctx), connect(ctx)
	store := pgxidem.New(claims)
	store.DatabaseTimeout = 2 * time.Second
	server := &http.Server{
		Handler:           routes(store, &service{own: own}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	go func() {
		<-ctx.Done()
		soon, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		_ = server.Shutdown(soon)
		os.Exit(0) // running handlers are interrupted, as by a crash
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	select {} // until the other has ended
}

// connect makes a pool for the database that the environment names. It connects when it is used.
func connect(ctx context.Context) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		log.Fatal(err)
	}
	if os.Getenv("POOLED") != "" {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	config.MaxConns = 20
	config.ConnConfig.ConnectTimeout = 3 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

// tenant is the token of the one Authorization field.
func tenant(r *http.Request) string {
	fields := r.Header.Values("Authorization")
	if len(fields) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func routes(store *pgxidem.Store, s *service) http.Handler {
	type options = idempotency.Route
	mux := http.NewServeMux()
	plain := options{Principal: tenant, OnExecute: s.hook("execute"), OnReplay: s.hook("replay"),
		OnRefusal: s.hook("refusal"), OnLeaseLost: s.hook("lease_lost")}
	if os.Getenv("BENCH") != "" { // for bench/clients: no hooks, and the route /bare
		plain = options{Principal: tenant}
		mux.HandleFunc("POST /bare", s.bare)
	}
	with := func(change func(*options)) options {
		route := plain
		change(&route)
		return route
	}
	protect := func(path string, middleware func(http.Handler) http.Handler) {
		mux.Handle("POST "+path, middleware(idempotency.HandlerFunc(s.handle)))
	}
	protect("/transactional", store.Transactional(plain))
	protect("/streamed", store.Transactional(plain))
	leased := with(func(o *options) { o.Lease = 2 * time.Second })
	protect("/leased", store.Leased(leased))
	protect("/uncertain", store.Leased(leased))
	protect("/generate", store.Transactional(with(func(o *options) { o.MissingKey = idempotency.Generate })))
	protect("/derive", store.Transactional(with(func(o *options) {
		o.MissingKey, o.Window = idempotency.Derive, 2*time.Second
	})))
	protect("/pass", store.Transactional(with(func(o *options) { o.MissingKey = idempotency.Pass })))
	protect("/configured", store.Transactional(with(func(o *options) {
		o.Statuses = map[string]int{"in_progress": 425, "mismatch": 400, "unavailable": 500}
		o.KeyHeader, o.ReplayHeader, o.EchoKey = "X-Request-Key", "X-Replay", true
		o.Exclude = []string{"ts"}
		o.Keep = func(int) bool { return true }
		o.TTL = time.Second
	})))
	protect("/small", store.Transactional(with(func(o *options) { o.MaxRequestBytes, o.MaxAnswerBytes = 1000, 1000 })))
	protect("/omit", store.Transactional(with(func(o *options) { o.MaxAnswerBytes, o.OmitLargeAnswers = 1000, true })))
	protect("/unprotected", store.Transactional(with(func(o *options) { o.UnprotectedWithoutDatabase = true })))
	judge := func(o *options) {
		o.Verdict = func(a *idempotency.Answer) idempotency.Verdict {
			return map[string]idempotency.Verdict{"keep": idempotency.Keep, "free": idempotency.Free,
				"unknown": idempotency.Unknown}[a.Header.Get("X-Verdict")]
		}
	}
	protect("/judged", store.Transactional(with(judge)))
	protect("/judged_leased", store.Leased(with(func(o *options) { judge(o); o.Lease = 2 * time.Second })))
	protect("/impatient", store.Transactional(with(func(o *options) { o.HandlerTimeout = time.Second })))
	protect("/patient", store.Transactional(with(func(o *options) { o.Wait = 4 * time.Second })))
	mux.HandleFunc("GET /ways", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"hide_error": hiding,
			"commit":     []string{"sql", "driver", "batch", "conn"},
			"waits":      map[string]int{"execute": 3, "replay": 1, "leased": 3},
		})
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return mux
}
