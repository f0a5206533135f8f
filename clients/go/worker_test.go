package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"strings"
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

// What the conformance suite can't see of workers, or sees of one driver.

// A crew works for one test, whose name is the scope.
type crew[Tx any] struct {
	*testing.T
	pool  *pgxpool.Pool
	store *idempotency.Store[Tx]
	exec  func(ctx context.Context, tx Tx, query string, args ...any) error
}

func onEach(t *testing.T, onPgx func(*crew[pgx.Tx]), onSQL func(*crew[*sql.Tx])) {
	t.Run("pgx", func(t *testing.T) {
		pool := try.Pool(t)
		onPgx(&crew[pgx.Tx]{t, pool, pgxidem.New(pool), func(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		}})
	})
	t.Run("sql", func(t *testing.T) {
		pool := try.Pool(t)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { db.Close() })
		onSQL(&crew[*sql.Tx]{t, pool, sqlidem.New(db), func(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		}})
	})
}

// queue a record as after a first attempt that has failed.
func queue(t testing.TB, pool *pgxpool.Pool, key, scope, principal, request string) {
	t.Helper()
	try.Exec(t, pool, `SELECT idem_policy_set($1, store_request => true, retry_base => '1 day', retry_cap => '1 day')`, scope)
	try.Exec(t, pool, `SELECT idem_fail(b.key, 'queued', retryable => true, scope => $2, principal => $3, retry_after => '0')
		FROM idem_begin($1, $4::jsonb, scope => $2, principal => $3, method => 'POST', path => '/hook', lease => '1 hour') b`,
		key, scope, principal, request)
}

// found waits for a record of the scope that a worker has given this status, and gives the rest of it.
func found(t testing.TB, pool *pgxpool.Pool, scope, status string) (rest string) {
	t.Helper()
	for range 1200 {
		err := pool.QueryRow(context.Background(), `SELECT concat_ws(', ', status_code, convert_from(body, 'UTF8'), error, reference, recovery_point)
			FROM idempotency.records WHERE scope = $1 AND status = $2 AND attempt > 1`, scope, status).Scan(&rest)
		if err == nil {
			return rest
		} else if !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("there is no record that is ", status)
	return ""
}

// works until the one record has the status.
func (c *crew[Tx]) works(status string, leased bool, handler func(context.Context, *idempotency.Work[Tx]) (*idempotency.Answer, error)) (rest, log string) {
	c.Helper()
	queue(c, c.pool, "k", c.Name(), c.Name(), `{"a": 1}`)
	var logged strings.Builder
	w := &idempotency.Worker[Tx]{Store: c.store, Scope: c.Name(), Handler: handler, Leased: leased, Poll: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	rest = found(c, c.pool, c.Name(), status)
	cancel()
	if err := <-ended; err != nil {
		c.Error(err)
	}
	return rest, logged.String()
}

func testWhatAWorkerKnows[Tx any](c *crew[Tx]) {
	rest, log := c.works("completed", false, func(ctx context.Context, work *idempotency.Work[Tx]) (*idempotency.Answer, error) {
		if work.Key != "k" || work.Scope != c.Name() || work.Principal != c.Name() || work.Attempt != 2 || work.Token == 0 ||
			work.Method != "POST" || work.Path != "/hook" || string(work.Request) != `{"a": 1}` || work.Error != "queued" {
			c.Errorf("%+v", work)
		}
		if idempotency.InfoOf(ctx) != work.Info {
			c.Error(idempotency.InfoOf(ctx))
		}
		return nil, c.exec(ctx, work.Tx, try.Effect, c.Name(), "done")
	})
	if rest != "" || log != "" || try.Effects(c, c.pool) != "done" {
		c.Error(rest, log, try.Effects(c, c.pool))
	}
}

func TestWhatAWorkerKnows(t *testing.T) {
	onEach(t, testWhatAWorkerKnows[pgx.Tx], testWhatAWorkerKnows[*sql.Tx])
}

func testARaisedAnswerOfAWorker[Tx any](c *crew[Tx]) {
	rest, _ := c.works("completed", false, func(ctx context.Context, work *idempotency.Work[Tx]) (*idempotency.Answer, error) {
		if err := c.exec(ctx, work.Tx, try.Effect, c.Name(), "undone"); err != nil {
			return nil, err
		}
		return nil, &idempotency.StatusError{Status: 422, Message: "no"}
	})
	if rest != "422, no" || try.Effects(c, c.pool) != "" {
		c.Error(rest, try.Effects(c, c.pool))
	}
}

func TestARaisedAnswerOfAWorker(t *testing.T) {
	onEach(t, testARaisedAnswerOfAWorker[pgx.Tx], testARaisedAnswerOfAWorker[*sql.Tx])
}

func testAPanicEndsNoWorker[Tx any](c *crew[Tx]) {
	rest, log := c.works("retryable", false, func(ctx context.Context, work *idempotency.Work[Tx]) (*idempotency.Answer, error) {
		_ = c.exec(ctx, work.Tx, try.Effect, c.Name(), "undone")
		panic("at the disco")
	})
	if rest != "the handler panicked: at the disco" || try.Effects(c, c.pool) != "" || !strings.Contains(log, "worker_test.go") {
		c.Error(rest, try.Effects(c, c.pool), log)
	}
}

func TestAPanicEndsNoWorker(t *testing.T) {
	onEach(t, testAPanicEndsNoWorker[pgx.Tx], testAPanicEndsNoWorker[*sql.Tx])
}

func testLeasedWorkOfAWorker[Tx any](c *crew[Tx]) {
	rest, log := c.works("unknown", true, func(ctx context.Context, work *idempotency.Work[Tx]) (*idempotency.Answer, error) {
		_, err := idempotency.Step(ctx, work.Claim, "sent", func(context.Context) (int, error) { return 5, nil })
		return nil, errors.Join(err, work.Claim.Unknown(ctx, errors.New("no answer"), "ref"))
	})
	if rest != "no answer, ref, sent" || log != "" {
		c.Error(rest, log)
	}
}

func TestLeasedWorkOfAWorker(t *testing.T) {
	onEach(t, testLeasedWorkOfAWorker[pgx.Tx], testLeasedWorkOfAWorker[*sql.Tx])
}

func TestAnAbortTellsHandlers(t *testing.T) {
	pool := try.Pool(t)
	queue(t, pool, "k", t.Name(), t.Name(), "{}")
	begun := make(chan struct{})
	w := &pgxidem.Worker{Store: pgxidem.New(pool), Scope: t.Name(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handler: func(ctx context.Context, work *pgxidem.Work) (*idempotency.Answer, error) {
			close(begun)
			<-ctx.Done()
			return nil, errors.New("told")
		}}
	ended := make(chan error)
	go func() { ended <- w.Run(t.Context()) }()
	<-begun
	w.Stop()
	w.Stop()
	select {
	case <-ended:
		t.Error("it has ended before its handler")
	default:
	}
	w.Abort()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if rest := found(t, pool, t.Name(), "retryable"); rest != "told" {
		t.Error(rest)
	}
}

func TestAWorkerThatIsStoppedBeforeItRuns(t *testing.T) {
	w := &pgxidem.Worker{Store: pgxidem.New(try.Pool(t)), Scope: t.Name(), Handler: noWork}
	w.Stop()
	if err := w.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func noWork(context.Context, *pgxidem.Work) (*idempotency.Answer, error) { return nil, nil }

func TestWorkersThatCantWork(t *testing.T) {
	pool := try.Pool(t)
	store := pgxidem.New(pool)
	for name, w := range map[string]*pgxidem.Worker{
		"no scope":       {Store: store, Handler: noWork},
		"no handler":     {Store: store, Scope: "s"},
		"no store":       {Scope: "s", Handler: noWork},
		"size":           {Store: store, Scope: "s", Handler: noWork, Size: 1001},
		"negative size":  {Store: store, Scope: "s", Handler: noWork, Size: -1},
		"negative lease": {Store: store, Scope: "s", Handler: noWork, Lease: -1},
		"negative poll":  {Store: store, Scope: "s", Handler: noWork, Poll: -1},
		"refused scope":  {Store: store, Scope: " ", Handler: noWork},
	} {
		if err := w.Run(t.Context()); err == nil {
			t.Error(name)
		}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	deaf := &sqlidem.Worker{Store: sqlidem.New(db), Scope: "s", Channel: "c",
		Handler: func(context.Context, *sqlidem.Work) (*idempotency.Answer, error) { return nil, nil }}
	if err := deaf.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "pgxidem") {
		t.Error(err)
	}
}

func TestAWorkerListensAgain(t *testing.T) {
	pool := try.Pool(t)
	w := &pgxidem.Worker{Store: pgxidem.New(pool), Scope: t.Name(), Channel: t.Name(), Poll: 20 * time.Millisecond, Handler: noWork,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	first := listens(t, pool, 0)
	try.Exec(t, pool, "SELECT pg_terminate_backend($1)", first)
	listens(t, pool, first)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// listens waits for a backend that listens to the test's channel, and is another one.
func listens(t *testing.T, pool *pgxpool.Pool, other int32) (pid int32) {
	for range 1200 {
		err := pool.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE query = $1 AND pid <> $2",
			"LISTEN "+pgx.Identifier{t.Name()}.Sanitize(), other).Scan(&pid)
		if err == nil {
			return pid
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nothing listens")
	return 0
}
