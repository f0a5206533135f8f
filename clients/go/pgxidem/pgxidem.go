// Package pgxidem is idempotency on pgx.
package pgxidem

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
)

// Pool is a *pgxpool.Pool, or what wraps one.
type Pool interface {
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store and the others are idempotency's, for transactions of pgx.
type (
	Store  = idempotency.Store[pgx.Tx]
	Claim  = idempotency.Claim[pgx.Tx]
	Worker = idempotency.Worker[pgx.Tx]
	Work   = idempotency.Work[pgx.Tx]
)

// New makes a store. Its transactions are begun with the options, if there are any.
func New(pool Pool, options ...pgx.TxOptions) *Store {
	d := database{pool: pool, begin: "BEGIN", commit: "COMMIT"}
	if len(options) > 0 {
		d.begin = beginSQL(options[0])
		if options[0].CommitQuery != "" {
			d.commit = options[0].CommitQuery
		}
	}
	return idempotency.NewStore[pgx.Tx](d)
}

func beginSQL(options pgx.TxOptions) string {
	if options.BeginQuery != "" {
		return options.BeginQuery
	}
	sql := "BEGIN"
	if options.IsoLevel != "" {
		sql += " isolation level " + string(options.IsoLevel)
	}
	if options.AccessMode != "" {
		sql += " " + string(options.AccessMode)
	}
	if options.DeferrableMode != "" {
		sql += " " + string(options.DeferrableMode)
	}
	return sql
}

// Tx gives the transaction of a transactional route. The middleware ends it: its Commit and Rollback
// are errors. Begin makes a savepoint.
func Tx(ctx context.Context) pgx.Tx { return idempotency.TxOf[pgx.Tx](ctx) }

// ClaimOf gives the claim of a leased route.
func ClaimOf(ctx context.Context) *Claim { return idempotency.ClaimOf[pgx.Tx](ctx) }

type database struct {
	pool          Pool
	begin, commit string
}

// Begin sends BEGIN and the first statement together.
func (d database) Begin(ctx context.Context, first *idempotency.Statement) (pgx.Tx, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	batch := new(pgx.Batch)
	batch.Queue(d.begin)
	queue(batch, first)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		rollBack(ctx, conn)
		return nil, err
	}
	return &transaction{pool: conn, conn: conn.Conn()}, nil
}

func queue(batch *pgx.Batch, statement *idempotency.Statement) {
	if statement != nil {
		batch.Queue(statement.SQL, statement.Args...).QueryRow(func(row pgx.Row) error { return statement.Scan(row) })
	}
}

// rollBack gives the connection back. The pool closes one whose transaction has not ended.
func rollBack(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
}

// Commit sends the last statement and COMMIT together. If the statement fails, the server skips the
// COMMIT. It makes a ROLLBACK of one after a failure that the handler has hidden, and says that.
func (d database) Commit(ctx context.Context, tx pgx.Tx, last *idempotency.Statement) (sent bool, err error) {
	t := tx.(*transaction)
	t.over.Store(true)
	if t.conn.PgConn().TxStatus() == 'I' {
		t.pool.Release()
		return false, idempotency.ErrEnded
	}
	stored := last == nil
	var tag pgconn.CommandTag
	batch := new(pgx.Batch)
	if last != nil {
		scan := last.Scan
		queue(batch, &idempotency.Statement{SQL: last.SQL, Args: last.Args, Scan: func(row idempotency.Row) error {
			err := scan(row)
			stored = err == nil
			return err
		}})
	}
	batch.Queue(d.commit).Exec(func(t pgconn.CommandTag) error {
		tag = t
		return nil
	})
	if err = t.conn.SendBatch(ctx, batch).Close(); err == nil && tag.String() == "ROLLBACK" {
		err = errors.Join(idempotency.ErrEnded, pgx.ErrTxCommitRollback)
	}
	rollBack(ctx, t.pool)
	var server *pgconn.PgError
	return stored || !errors.As(err, &server), err
}

func (database) Rollback(ctx context.Context, tx pgx.Tx) error {
	t := tx.(*transaction)
	t.over.Store(true)
	defer t.pool.Release()
	if !t.conn.IsClosed() && t.conn.PgConn().TxStatus() == 'I' {
		return nil // the handler has ended it
	}
	_, err := t.conn.Exec(ctx, "ROLLBACK")
	if err != nil {
		_ = t.conn.Close(ctx)
	}
	return err
}

// Abandon takes the connection out of the pool and closes it, past pgx, which a handler may be using.
func (database) Abandon(tx pgx.Tx) {
	t := tx.(*transaction)
	t.over.Store(true)
	server := t.pool.Hijack().PgConn()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.CancelRequest(ctx)
		_ = server.Conn().Close()
	}()
}

func (database) Query(ctx context.Context, tx pgx.Tx, sql string, args ...any) idempotency.Row {
	return tx.QueryRow(ctx, sql, args...)
}

func (d database) QueryAlone(ctx context.Context, sql string, args ...any) idempotency.Row {
	return d.pool.QueryRow(ctx, sql, args...)
}

func (d database) QueryAll(ctx context.Context, scan func(idempotency.Row) error, sql string, args ...any) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Listen takes its connection out of the pool: it would go on listening there.
func (d database) Listen(ctx context.Context, channel string, notify func()) error {
	taken, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := taken.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	for err == nil {
		notify()
		_, err = conn.WaitForNotification(ctx)
	}
	return err
}
