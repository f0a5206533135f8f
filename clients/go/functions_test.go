package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
	"postgres.example/idempotency/sqlidem"
)

type charge struct {
	ID     int64
	Amount string
}

func TestTransactionally(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	store := pgxidem.New(b.pool)
	runs := 0
	pay := func(content any, failure error) (charge, error) {
		request := idempotency.Request{Key: "k", Scope: "pay", Principal: t.Name(), Content: content}
		return idempotency.Transactionally(t.Context(), store, request,
			func(ctx context.Context, tx pgx.Tx) (charge, error) {
				runs++
				if idempotency.InfoOf(ctx).Key != "k" || pgxidem.Tx(ctx) != tx {
					t.Error(idempotency.InfoOf(ctx))
				}
				_, err := tx.Exec(ctx, try.Effect, t.Name(), "x")
				return charge{1<<62 + 1, "é"}, errors.Join(err, failure)
			})
	}
	declined := errors.New("declined")
	if _, err := pay("one", declined); !errors.Is(err, declined) || b.effects() != "" {
		t.Error(err, b.effects())
	}
	for range 2 {
		if c, err := pay("one", nil); err != nil || c != (charge{1<<62 + 1, "é"}) {
			t.Error(c, err)
		}
	}
	var refusal *idempotency.Refusal
	if _, err := pay("other", nil); !errors.As(err, &refusal) || refusal.Outcome != "mismatch" {
		t.Error(err)
	}
	if runs != 2 || b.effects() != "x" {
		t.Error(runs, b.effects())
	}
}

func TestLeased(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	db := stdlib.OpenDBFromPool(b.pool)
	defer db.Close()
	store := sqlidem.New(db)
	keys := map[string]bool{}
	send := func(failure error) (string, error) {
		request := idempotency.Request{Key: "k", Scope: "send", Principal: t.Name()}
		return idempotency.Leased(t.Context(), store, request,
			func(ctx context.Context, claim *sqlidem.Claim) (string, error) {
				keys[claim.Derived("gateway")] = true
				sent, err := idempotency.Step(ctx, claim, "sent", func(context.Context) (string, error) {
					return "sent by attempt 1", nil
				})
				return sent, errors.Join(err, failure)
			})
	}
	broken := errors.New("broken")
	if _, err := send(broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	var refusal *idempotency.Refusal
	if _, err := send(nil); !errors.As(err, &refusal) || refusal.Outcome != "retry_later" ||
		refusal.Reason != "broken" || refusal.RetryAfter <= 0 {
		t.Error(err)
	}
	try.Exec(t, b.pool, "SELECT idem_resolve('k', 'release', scope => 'send', principal => $1, even_if_running => true)", t.Name())
	for range 2 {
		if text, err := send(nil); err != nil || text != "sent by attempt 1" {
			t.Error(text, err)
		}
	}
	if len(keys) != 1 {
		t.Error(keys)
	}
}

// What several goroutines do at once is all known to the next attempt.
func TestStepsAtOnce(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	store := pgxidem.New(b.pool)
	names := []string{"a", "b", "c", "d", "tx"}
	attempt := func(work func() string, failure error) (results []string, err error) {
		request := idempotency.Request{Key: "k", Scope: "at once", Principal: t.Name()}
		_, err = idempotency.Leased(t.Context(), store, request,
			func(ctx context.Context, claim *pgxidem.Claim) (string, error) {
				results = make([]string, len(names))
				var all sync.WaitGroup
				for i, name := range names {
					all.Add(1)
					go func() {
						defer all.Done()
						if name == "tx" {
							results[i], _ = idempotency.StepTx(ctx, claim, name, func(context.Context, pgx.Tx) (string, error) {
								return work(), nil
							})
							return
						}
						results[i], _ = idempotency.Step(ctx, claim, name, func(context.Context) (string, error) {
							return work(), nil
						})
					}()
				}
				all.Wait()
				return "", failure
			})
		return results, err
	}
	var met sync.WaitGroup
	met.Add(len(names))
	broken := errors.New("broken")
	first := func() string {
		met.Done()
		met.Wait()
		return "first"
	}
	if _, err := attempt(first, broken); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	try.Exec(t, b.pool, "SELECT idem_resolve('k', 'release', scope => 'at once', principal => $1, even_if_running => true)", t.Name())
	results, err := attempt(func() string { return "second" }, nil)
	if err != nil || strings.Join(results, " ") != "first first first first first" {
		t.Error(results, err)
	}
}

func TestOnce(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	store := pgxidem.New(b.pool)
	handle := func(failure error) (bool, error) {
		return idempotency.Once(t.Context(), store, "m1", "inbox", t.Name(), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, try.Effect, t.Name(), "x")
			return errors.Join(err, failure)
		})
	}
	if first, err := handle(errors.New("broken")); first || err == nil {
		t.Error(first, err)
	}
	for _, want := range []bool{true, false, false} {
		if first, err := handle(nil); first != want || err != nil {
			t.Error(first, err)
		}
	}
	if b.effects() != "x" {
		t.Error(b.effects())
	}
}

// Of a transaction in which a statement has failed COMMIT makes a ROLLBACK: the message is not handled.
func TestOnceWithAHiddenError(t *testing.T) {
	withEach(t, func(b *bench) {
		runs := 0
		handle := func(hidden bool) (bool, error) {
			return b.once("m1", func(ctx context.Context, exec func(string, ...any) error) error {
				runs++
				if hidden {
					_ = exec("SELECT 1/0")
					return nil
				}
				return exec(try.Effect, b.Name(), "done")
			})
		}
		if first, err := handle(true); first || err == nil || runs != 1 {
			b.Error(first, err, runs)
		}
		if first, err := handle(false); !first || err != nil || b.effects() != "done" {
			b.Error(first, err, b.effects())
		}
	})
}

// A handler on database/sql can end its transaction, which is found out and told.
func TestAnEndedTransaction(t *testing.T) {
	pool := try.Pool(t)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	runs := 0
	_, err := idempotency.Transactionally(t.Context(), sqlidem.New(db), idempotency.Request{Key: "k", Principal: t.Name()},
		func(_ context.Context, tx *sql.Tx) (int, error) {
			runs++
			return 1, tx.Rollback()
		})
	if !errors.Is(err, idempotency.ErrEnded) || runs != 1 {
		t.Error(err, runs)
	}
}
