package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/pgxidem"
)

// service is the one handler of all routes: the body of a request says what it is to do.
type service struct {
	own  *pgxpool.Pool // connections that have nothing to do with claims
	mu   sync.Mutex
	runs map[string]int // of the handler, by key
}

type task struct {
	Gate                  *int64
	Effect                *string
	Unknown               *[2]string
	Commit                string
	HideError             any `json:"hide_error"`
	Never                 bool
	Idle                  int
	Late, Stranger        *string
	Raise                 int
	SerializationFailures int  `json:"serialization_failures"`
	NothingHappened       bool `json:"nothing_happened"`
	Hang, Throw, Exit     bool
	Status                int
	Headers               [][2]string
	Body                  []byte
	Repeat                int
}

func (s *service) handle(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	do := task{Status: http.StatusCreated, Repeat: 1}
	isJSON := strings.Contains(r.Header.Get("Content-Type"), "json") && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))
	if !isJSON || json.Unmarshal(body, &do) != nil {
		if err := s.effect(ctx, "raw"); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	}
	if err := s.work(ctx, &do); err != nil {
		return err
	}
	for _, header := range do.Headers {
		w.Header().Add(header[0], header[1])
	}
	w.WriteHeader(do.Status)
	if r.URL.Path == "/streamed" {
		return stream(w, bytes.Repeat(do.Body, do.Repeat))
	}
	for range do.Repeat {
		if len(do.Body) > 0 && err == nil {
			_, err = w.Write(do.Body)
		}
	}
	return err
}

// bare is the work of /transactional without the client.
func (s *service) bare(w http.ResponseWriter, r *http.Request) {
	var do task
	err := json.NewDecoder(r.Body).Decode(&do)
	if err == nil {
		err = pgx.BeginFunc(r.Context(), s.own, func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), insertEffect, "bench", "", *do.Effect)
			return err
		})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (s *service) work(ctx context.Context, do *task) error {
	if do.Gate != nil {
		// A handler that has lost its claim waits there, too.
		if err := s.pass(context.WithoutCancel(ctx), *do.Gate); err != nil {
			return err
		}
	}
	if do.Effect != nil {
		if err := s.effect(ctx, *do.Effect); err != nil {
			return err
		}
	}
	if do.Unknown != nil {
		if err := pgxidem.ClaimOf(ctx).Unknown(ctx, errors.New(do.Unknown[0]), do.Unknown[1]); err != nil {
			return err
		}
	}
	if do.Commit != "" {
		if err := commit(ctx, do.Commit); err != nil {
			return err
		}
	}
	if way, hides := do.HideError.(string); hides {
		hide(ctx, pgxidem.Tx(ctx), way)
	} else if do.HideError == true {
		hide(ctx, pgxidem.Tx(ctx), "exec")
	}
	if s.run(idempotency.InfoOf(ctx)) <= do.SerializationFailures {
		return s.conflict(ctx)
	}
	if do.Hang {
		<-ctx.Done()
		_, err := s.own.Exec(context.WithoutCancel(ctx), insertEffect, s.row(ctx, "lost")...)
		return err
	}
	if do.Never {
		select {}
	}
	if do.Idle > 0 {
		span := time.Duration(do.Idle) * time.Millisecond
		if _, err := pgxidem.Tx(ctx).Exec(ctx, fmt.Sprint("SET LOCAL idle_in_transaction_session_timeout = ", do.Idle)); err != nil {
			return err
		}
		time.Sleep(span + time.Second)
	}
	if do.Late != nil {
		go s.late(context.WithoutCancel(ctx), pgxidem.Tx(ctx), *do.Late)
	}
	if do.Stranger != nil {
		return map[string]error{"code": stranger{}, "words": errors.New("Connection closed")}[*do.Stranger]
	}
	if do.Raise > 0 {
		return &idempotency.StatusError{Status: do.Raise, Message: "raised"}
	}
	if do.NothingHappened {
		return idempotency.NothingHappened(errors.New("nothing happened"))
	}
	if do.Throw {
		return errors.New("the handler was told to fail")
	}
	if do.Exit {
		os.Exit(3)
	}
	return nil
}

// commit is what no handler should do.
func commit(ctx context.Context, way string) error {
	var err error
	switch tx := pgxidem.Tx(ctx); way {
	case "driver":
		err = tx.Commit(ctx)
	case "batch":
		batch := new(pgx.Batch)
		batch.Queue("COMMIT")
		err = tx.SendBatch(ctx, batch).Close()
	case "conn":
		_, err = tx.Conn().Exec(ctx, "COMMIT")
	default:
		_, err = tx.Exec(ctx, "COMMIT")
	}
	return err
}

// hiding names the calls of pgx that can run a statement.
var hiding = []string{"exec", "query", "query_row", "send_batch", "copy_from", "prepare", "conn"}

// hide is what no handler should do either.
func hide(ctx context.Context, tx pgx.Tx, way string) {
	const wrong = "SELECT 1/0"
	switch way {
	case "query":
		if rows, err := tx.Query(ctx, wrong); err == nil {
			rows.Close()
		}
	case "query_row":
		_ = tx.QueryRow(ctx, wrong).Scan(new(int))
	case "send_batch":
		batch := new(pgx.Batch)
		batch.Queue(wrong)
		_ = tx.SendBatch(ctx, batch).Close()
	case "copy_from":
		_, _ = tx.CopyFrom(ctx, pgx.Identifier{"no_such_table"}, []string{"a"}, pgx.CopyFromRows([][]any{{1}}))
	case "prepare":
		_, _ = tx.Prepare(ctx, "wrong", "SELECT no_such_column")
	case "conn":
		_, _ = tx.Conn().Exec(ctx, wrong)
	default:
		_, _ = tx.Exec(ctx, wrong)
	}
}

// stranger looks like an error of the server.
type stranger struct{}

func (stranger) Error() string    { return "the gateway says 40004" }
func (stranger) SQLState() string { return "40004" }

// late uses the transaction after its handler has returned.
func (s *service) late(ctx context.Context, tx pgx.Tx, note string) {
	time.Sleep(300 * time.Millisecond)
	_, _ = tx.Exec(ctx, insertEffect, s.row(ctx, note)...)
	_, _ = s.own.Exec(ctx, insertEffect, s.row(ctx, "tried")...)
}

// pass waits for a gate that the suite opens.
func (s *service) pass(ctx context.Context, gate int64) error {
	connection, err := s.own.Acquire(ctx)
	if err != nil {
		return err
	}
	defer connection.Release()
	if _, err = connection.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", gate); err == nil {
		_, err = connection.Exec(ctx, "SELECT pg_advisory_unlock_shared($1)", gate)
	}
	return err
}

const insertEffect = "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)"

func (s *service) row(ctx context.Context, note string) []any {
	info := idempotency.InfoOf(ctx)
	return []any{info.Principal, info.Key, note}
}

// effect is part of the claim's transaction, or a step of a leased claim.
func (s *service) effect(ctx context.Context, note string) error {
	if tx := pgxidem.Tx(ctx); tx != nil {
		_, err := tx.Exec(ctx, insertEffect, s.row(ctx, note)...)
		return err
	}
	if claim := pgxidem.ClaimOf(ctx); claim != nil {
		_, err := idempotency.StepTx(ctx, claim, "effect", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, insertEffect, s.row(ctx, note)...)
			return struct{}{}, err
		})
		return err
	}
	_, err := s.own.Exec(ctx, insertEffect, s.row(ctx, note)...)
	return err
}

func (s *service) run(info idempotency.Info) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]int{}
	}
	name := info.Scope + "\n" + info.Principal + "\n" + info.Key
	s.runs[name]++
	return s.runs[name]
}

// conflict meets SQLSTATE 40001.
func (s *service) conflict(ctx context.Context) error {
	const raise = "DO $$BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END$$"
	if tx := pgxidem.Tx(ctx); tx != nil {
		_, err := tx.Exec(ctx, raise)
		return err
	}
	_, err := s.own.Exec(ctx, raise)
	return err
}

func stream(w http.ResponseWriter, body []byte) error {
	for len(body) > 0 {
		n, err := w.Write(body[:min(len(body), 100)])
		if err != nil {
			return err
		}
		w.(http.Flusher).Flush()
		body = body[n:]
	}
	return nil
}

func (s *service) hook(name string) idempotency.Hook {
	return func(ctx context.Context, e idempotency.Event) {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // the request waits
		defer cancel()
		_, _ = s.own.Exec(ctx, "INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, $4, $5)",
			name, e.Scope, e.Key, e.Attempt, e.Outcome)
	}
}
