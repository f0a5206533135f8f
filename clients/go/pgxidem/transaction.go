package pgxidem

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var errNotYours = errors.New("idempotency: the middleware ends the transaction of a claim")

// A transaction is the one of a claim. Pgx makes its own only by a BEGIN that is sent alone. Once the
// middleware has ended it, its methods answer pgx.ErrTxClosed: the connection may have another user.
type transaction struct {
	pool       *pgxpool.Conn
	conn       *pgx.Conn
	over       atomic.Bool
	savepoints atomic.Int64
	unread     []byte // at the last look of Loss
}

func (t *transaction) Commit(context.Context) error   { return errNotYours }
func (t *transaction) Rollback(context.Context) error { return errNotYours }
func (t *transaction) Conn() *pgx.Conn                { return t.conn }

func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	s := &savepoint{transaction: t, name: "sp_" + strconv.FormatInt(t.savepoints.Add(1), 10)}
	if _, err := t.Exec(ctx, "savepoint "+s.name); err != nil {
		return nil, err
	}
	return s, nil
}

func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.over.Load() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.conn.Exec(ctx, sql, args...)
}

func (t *transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.over.Load() {
		return closed{}, pgx.ErrTxClosed
	}
	return t.conn.Query(ctx, sql, args...)
}

func (t *transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.over.Load() {
		return closed{}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

func (t *transaction) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	return t.conn.Prepare(ctx, name, sql)
}

func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	source pgx.CopyFromSource) (int64, error) {
	if t.over.Load() {
		return 0, pgx.ErrTxClosed
	}
	return t.conn.CopyFrom(ctx, table, columns, source)
}

func (t *transaction) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if t.over.Load() {
		return closedBatch{}
	}
	return t.conn.SendBatch(ctx, batch)
}

// LargeObjects can be had of pgx's own transaction alone, so one is made, whose BEGIN does nothing.
func (t *transaction) LargeObjects() pgx.LargeObjects {
	if !t.over.Load() {
		if own, err := t.conn.BeginTx(context.Background(), pgx.TxOptions{BeginQuery: "select"}); err == nil {
			return own.LargeObjects()
		}
	}
	return pgx.LargeObjects{}
}

// A savepoint is what Begin of a transaction makes.
type savepoint struct {
	*transaction
	name  string
	ended atomic.Bool
}

func (s *savepoint) Commit(ctx context.Context) error   { return s.end(ctx, "release savepoint ") }
func (s *savepoint) Rollback(ctx context.Context) error { return s.end(ctx, "rollback to savepoint ") }

func (s *savepoint) end(ctx context.Context, sql string) error {
	if s.ended.Swap(true) {
		return pgx.ErrTxClosed
	}
	_, err := s.Exec(ctx, sql+s.name)
	return err
}

// closed is the rows, or the row, of a transaction that has ended.
type closed struct{}

func (closed) Close()                                       {}
func (closed) Err() error                                   { return pgx.ErrTxClosed }
func (closed) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (closed) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (closed) Next() bool                                   { return false }
func (closed) Scan(...any) error                            { return pgx.ErrTxClosed }
func (closed) Values() ([]any, error)                       { return nil, pgx.ErrTxClosed }
func (closed) RawValues() [][]byte                          { return nil }
func (closed) Conn() *pgx.Conn                              { return nil }

type closedBatch struct{}

func (closedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, pgx.ErrTxClosed }
func (closedBatch) Query() (pgx.Rows, error)         { return closed{}, pgx.ErrTxClosed }
func (closedBatch) QueryRow() pgx.Row                { return closed{} }
func (closedBatch) Close() error                     { return pgx.ErrTxClosed }
