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

// A Statement is one of ours, with what reads its row.
type Statement struct {
	SQL  string
	Args []any
	Scan func(Row) error
}

// Database is what the package of a driver brings. Tx is the driver's transaction, as handlers get
// it. Errors of the server have a method SQLState() string, as those of pgx and of lib/pq have; an
// error without one means that the connection is lost.
type Database[Tx any] interface {
	// Begin starts a transaction and runs its first statement, if there is one: in the same message
	// where the driver can. After an error there is no transaction. Its context ends after the
	// transaction.
	Begin(ctx context.Context, first *Statement) (Tx, error)
	// Commit runs the last statement, if there is one, and COMMIT: in the same message where the driver
	// can. Without a last statement it is an error if a statement of the transaction has failed and the
	// handler has hidden that: PostgreSQL makes a ROLLBACK of its COMMIT. Sent says of an error whether
	// the server may have got the COMMIT. The connection is given back, whatever becomes of it.
	Commit(ctx context.Context, tx Tx, last *Statement) (sent bool, err error)
	// Rollback gives the connection back, whatever becomes of it.
	Rollback(ctx context.Context, tx Tx) error
	// Abandon is Rollback of a transaction that another goroutine may be using.
	Abandon(tx Tx)
	// Query runs a statement in a transaction.
	Query(ctx context.Context, tx Tx, sql string, args ...any) Row
	// QueryAlone runs a statement that commits by itself.
	QueryAlone(ctx context.Context, sql string, args ...any) Row
	// QueryAll is the same for several rows, each of which is given to scan.
	QueryAll(ctx context.Context, scan func(Row) error, sql string, args ...any) error
}

// A Listener is a Database that can wait for notifications. Listen calls notify when it listens, and
// for each notification, until ctx ends or its connection, which no other uses, is lost.
type Listener interface {
	Listen(ctx context.Context, channel string, notify func()) error
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

// An end says how a transaction ends.
type end int

const (
	rollBack      end = iota
	rollBackLater     // nothing waits for it
	commit
)

// inTransaction begins a transaction with a statement, if there is one, and runs work in it, which
// says how it ends, and by which statement. A panic rolls back and goes on. The clock runs while the
// database is asked, and work stops it for the time of a handler.
//
// A transaction that can't be rolled back has lost its connection, whatever work made of that: its
// error says so, and may be cured by a repetition.
func (s *Store[Tx]) inTransaction(ctx context.Context, extra time.Duration, first *Statement,
	work func(ctx context.Context, tx Tx, clock *clock) (end, *Statement, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	clock := startClock(s.DatabaseTimeout+extra, cancel)
	later := false
	defer func() {
		clock.stop()
		if !later {
			cancel(nil)
		}
	}()
	tx, err := s.db.Begin(ctx, first)
	if err != nil {
		return late(ctx, ofDatabase(err))
	}
	ended := false
	defer func() {
		if !ended {
			_ = s.rollback(ctx, tx)
		}
	}()
	end, last, err := work(ctx, tx, clock)
	ended = true
	switch given := (abandoned{}); {
	case errors.As(err, &given):
		s.db.Abandon(tx)
		return err
	case err == nil && end == commit:
		sent, err := s.db.Commit(ctx, tx, last)
		if err != nil && sent {
			err = commitError{err}
		}
		return late(ctx, ofDatabase(err))
	case err == nil && end == rollBackLater:
		later = true
		go func() {
			defer cancel(nil)
			_ = s.rollback(ctx, tx)
		}()
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
