package idempotency

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"
)

// Row is what a query of one row gives: *sql.Row and pgx.Row are Rows.
type Row interface{ Scan(dest ...any) error }

// Database is what the package of a driver brings. Tx is the driver's transaction, as handlers get
// it. Errors of the server have a method SQLState() string, as those of pgx and of lib/pq have; an
// error without one means that the connection is lost.
type Database[Tx any] interface {
	// Begin starts a transaction. Its context ends after the transaction.
	Begin(ctx context.Context) (Tx, error)
	// Commit and Rollback give the connection back, whatever becomes of it.
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Check is an error where a statement of the transaction has failed and the handler has hidden that:
	// PostgreSQL makes a ROLLBACK of its COMMIT. It is asked where no statement of ours comes last. Nil
	// where Commit says so itself.
	Check(ctx context.Context, tx Tx) error
	// Query runs a statement in a transaction.
	Query(ctx context.Context, tx Tx, sql string, args ...any) Row
	// QueryAlone runs a statement that commits by itself.
	QueryAlone(ctx context.Context, sql string, args ...any) Row
}

// Store keeps the records of requests. It is safe for concurrent use.
type Store[Tx any] struct {
	// DatabaseTimeout is how long the statements before a handler may take together, the connection
	// for them included, and those after it: 10 s unless it is set before the store is used. Then the
	// connection is given up and the database counts as away: one that swallows bytes is noticed no
	// other way.
	DatabaseTimeout time.Duration

	db       Database[Tx]
	holder   string
	problems sync.Map // the server's problem documents, by their word
}

// NewStore is called by the packages of drivers.
func NewStore[Tx any](db Database[Tx]) *Store[Tx] {
	host, _ := os.Hostname()
	if host == "" {
		host = "go"
	}
	return &Store[Tx]{db: db, holder: host + ":" + strconv.Itoa(os.Getpid()), DatabaseTimeout: defaultDatabaseTimeoutMs * time.Millisecond}
}

// inTransaction runs work in a transaction, which it commits if work says so. A panic rolls back and
// goes on. The clock runs while the database is asked, and work stops it for the time of a handler.
//
// A transaction that can't be rolled back has lost its connection, whatever work made of that: its
// error says so, and may be cured by a repetition.
func (s *Store[Tx]) inTransaction(ctx context.Context, extra time.Duration,
	work func(ctx context.Context, tx Tx, clock *clock) (commit bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clock := startClock(s.DatabaseTimeout+extra, cancel)
	defer clock.stop()

	tx, err := s.db.Begin(ctx)
	if err != nil {
		return late(ctx, ofDatabase(err))
	}
	ended := false
	defer func() {
		if !ended {
			_ = s.rollback(ctx, tx)
		}
	}()
	commit, err := work(ctx, tx, clock)
	ended = true
	if err == nil && commit {
		if err = s.db.Commit(ctx, tx); err != nil {
			return late(ctx, ofDatabase(commitError{err}))
		}
		return nil
	}
	if failure := s.rollback(ctx, tx); failure != nil && sqlState(err) == "" {
		err = errors.Join(err, ofDatabase(failure))
	}
	return late(ctx, err)
}

// rollback has a time of its own, for the transaction's may be over.
func (s *Store[Tx]) rollback(ctx context.Context, tx Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.DatabaseTimeout)
	defer cancel()
	return s.db.Rollback(ctx, tx)
}

// late says of an error that it comes from our own clock, where it does.
func late(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return errors.Join(errTimeout, err)
	}
	return err
}

// A clock gives up a transaction whose statements take too long; the handler's time does not count.
type clock struct {
	timer *time.Timer
	span  time.Duration
}

func startClock(span time.Duration, cancel context.CancelCauseFunc) *clock {
	return &clock{span: span, timer: time.AfterFunc(span, func() { cancel(errTimeout) })}
}

func (c *clock) stop()  { c.timer.Stop() }
func (c *clock) start() { c.timer.Reset(c.span) }
