// Package pgxidem is idempotency on pgx.
package pgxidem

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"postgres.example/idempotency"
)

// Pool is a *pgxpool.Pool, or what wraps one.
type Pool interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store and Claim are idempotency's, for transactions of pgx.
type (
	Store = idempotency.Store[pgx.Tx]
	Claim = idempotency.Claim[pgx.Tx]
)

// New makes a store. Its transactions are begun with the options, if there are any.
func New(pool Pool, options ...pgx.TxOptions) *Store {
	d := database{pool: pool}
	if len(options) > 0 {
		d.options = options[0]
	}
	return idempotency.NewStore[pgx.Tx](d)
}

// Tx gives the transaction of a transactional route. The middleware ends it: its Commit and Rollback
// are errors. Begin makes a savepoint.
func Tx(ctx context.Context) pgx.Tx { return idempotency.TxOf[pgx.Tx](ctx) }

// ClaimOf gives the claim of a leased route.
func ClaimOf(ctx context.Context) *Claim { return idempotency.ClaimOf[pgx.Tx](ctx) }

type database struct {
	pool    Pool
	options pgx.TxOptions
}

// lent is a transaction that only its lender ends.
type lent struct{ pgx.Tx }

func (lent) Commit(context.Context) error   { return errNotYours }
func (lent) Rollback(context.Context) error { return errNotYours }

var errNotYours = errors.New("idempotency: the middleware ends the transaction of a claim")

func (d database) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.pool.BeginTx(ctx, d.options)
	if err != nil {
		return nil, err
	}
	return lent{tx}, nil
}

func (database) Commit(ctx context.Context, tx pgx.Tx) error {
	return ended(tx.(lent).Tx.Commit(ctx))
}

// Check: pgx looks at what COMMIT answers.
func (database) Check(context.Context, pgx.Tx) error { return nil }

func (database) Rollback(ctx context.Context, tx pgx.Tx) error {
	err := tx.(lent).Tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

func (database) Query(ctx context.Context, tx pgx.Tx, sql string, args ...any) idempotency.Row {
	return tx.QueryRow(ctx, sql, args...)
}

func (d database) QueryAlone(ctx context.Context, sql string, args ...any) idempotency.Row {
	return d.pool.QueryRow(ctx, sql, args...)
}

func ended(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return errors.Join(idempotency.ErrEnded, err)
	}
	return err
}
