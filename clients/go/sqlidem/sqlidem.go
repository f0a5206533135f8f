// Package sqlidem is idempotency on database/sql, with any driver of PostgreSQL whose errors have a
// method SQLState: pgx's stdlib and lib/pq.
package sqlidem

import (
	"context"
	"database/sql"
	"errors"

	"postgres.example/idempotency"
)

// Store and the others are idempotency's, for transactions of database/sql.
type (
	Store  = idempotency.Store[*sql.Tx]
	Claim  = idempotency.Claim[*sql.Tx]
	Worker = idempotency.Worker[*sql.Tx]
	Work   = idempotency.Work[*sql.Tx]
)

// New makes a store. Its transactions are begun with the options, if there are any.
func New(db *sql.DB, options ...*sql.TxOptions) *Store {
	d := database{db: db}
	if len(options) > 0 {
		d.options = options[0]
	}
	return idempotency.NewStore[*sql.Tx](d)
}

// Tx gives the transaction of a transactional route. The middleware ends it: a handler that commits
// or rolls back gets a 500.
func Tx(ctx context.Context) *sql.Tx { return idempotency.TxOf[*sql.Tx](ctx) }

// ClaimOf gives the claim of a leased route.
func ClaimOf(ctx context.Context) *Claim { return idempotency.ClaimOf[*sql.Tx](ctx) }

type database struct {
	db      *sql.DB
	options *sql.TxOptions
}

// Begin sends its statements one after the other: database/sql has no way to send two in one message.
func (d database) Begin(ctx context.Context, first *idempotency.Statement) (*sql.Tx, error) {
	tx, err := d.db.BeginTx(ctx, d.options)
	if err != nil || first == nil {
		return tx, err
	}
	if err := first.Scan(d.Query(ctx, tx, first.SQL, first.Args...)); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// Commit asks by SELECT 1 where there is no last statement: not every driver tells of a COMMIT that has
// rolled back, and those that do use errors of their own.
func (d database) Commit(ctx context.Context, tx *sql.Tx, last *idempotency.Statement) (sent bool, err error) {
	if last != nil {
		err = last.Scan(d.Query(ctx, tx, last.SQL, last.Args...))
	} else {
		_, err = tx.ExecContext(ctx, "SELECT 1")
	}
	if err != nil {
		_ = tx.Rollback()
		return false, ended(err)
	}
	return true, ended(tx.Commit())
}

func (database) Rollback(_ context.Context, tx *sql.Tx) error {
	err := tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Abandon waits for what the handler is doing, in the background.
func (database) Abandon(tx *sql.Tx) {
	go func() { _ = tx.Rollback() }()
}

func (database) Query(ctx context.Context, tx *sql.Tx, query string, args ...any) idempotency.Row {
	return row{tx.QueryRowContext(ctx, query, args...)}
}

func (d database) QueryAlone(ctx context.Context, query string, args ...any) idempotency.Row {
	return d.db.QueryRowContext(ctx, query, args...)
}

func (d database) QueryAll(ctx context.Context, scan func(idempotency.Row) error, query string, args ...any) error {
	rows, err := d.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type row struct{ *sql.Row }

func (r row) Scan(dest ...any) error { return ended(r.Row.Scan(dest...)) }

func ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return errors.Join(idempotency.ErrEnded, err)
	}
	return err
}
