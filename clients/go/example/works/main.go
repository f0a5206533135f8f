// The worker of the conformance suite, clients/conformance/README.md: each request says what its handler
// is to do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postgres.example/idempotency"
	"postgres.example/idempotency/pgxidem"
)

type task struct {
	Effect       *string
	Gate         *int64
	Lost         bool
	ThrowUntil   int `json:"throw_until"`
	NothingUntil int `json:"nothing_until"`
	Status       int
	Body         string
}

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store := pgxidem.New(connect())
	store.DatabaseTimeout = 2 * time.Second
	own := connect()
	worker := &pgxidem.Worker{
		Store: store, Scope: os.Getenv("WORKER_SCOPE"), Size: number("WORKER_SIZE"),
		Lease:          time.Duration(number("WORKER_LEASE_MS")) * time.Millisecond,
		Poll:           time.Duration(number("WORKER_POLL_MS")) * time.Millisecond,
		HandlerTimeout: time.Duration(number("WORKER_HANDLER_TIMEOUT_MS")) * time.Millisecond,
		Channel:        os.Getenv("WORKER_CHANNEL"), Leased: os.Getenv("WORKER_MODE") == "leased",
		Handler: func(ctx context.Context, work *pgxidem.Work) (*idempotency.Answer, error) {
			return perform(ctx, own, work)
		},
	}
	fmt.Println("ready")
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func connect() *pgxpool.Pool {
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		log.Fatal(err)
	}
	config.MaxConns = 20
	config.ConnConfig.ConnectTimeout = 3 * time.Second
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		log.Fatal(name, ": ", err)
	}
	return n
}

func perform(ctx context.Context, own *pgxpool.Pool, work *pgxidem.Work) (*idempotency.Answer, error) {
	var do task
	if err := json.Unmarshal(work.Request, &do); err != nil {
		return nil, err
	}
	deaf := context.WithoutCancel(ctx)
	if do.Effect != nil {
		if err := insert(ctx, own, work, *do.Effect); err != nil {
			return nil, err
		}
	}
	if do.Gate != nil {
		if err := pass(deaf, own, *do.Gate); err != nil {
			return nil, err
		}
	}
	if do.Lost {
		<-ctx.Done()
		if _, err := own.Exec(deaf, insertEffect, work.Principal, work.Key, "lost"); err != nil {
			return nil, err
		}
	}
	if work.Attempt < do.ThrowUntil {
		return nil, errors.New("the handler was told to fail")
	}
	if work.Attempt < do.NothingUntil {
		return nil, idempotency.NothingHappened(errors.New("nothing happened"))
	}
	if do.Status == 0 {
		return nil, nil
	}
	return &idempotency.Answer{Status: do.Status, Body: []byte(do.Body)}, nil
}

const insertEffect = "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)"

// insert in the transaction of the work, if there is one.
func insert(ctx context.Context, own *pgxpool.Pool, work *pgxidem.Work, note string) (err error) {
	if work.Tx == nil {
		_, err = own.Exec(ctx, insertEffect, work.Principal, work.Key, note)
	} else {
		_, err = work.Tx.Exec(ctx, insertEffect, work.Principal, work.Key, note)
	}
	return err
}

// pass waits for a gate that the suite opens.
func pass(ctx context.Context, own *pgxpool.Pool, gate int64) error {
	return own.AcquireFunc(ctx, func(connection *pgxpool.Conn) error {
		_, err := connection.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", gate)
		if err == nil {
			_, err = connection.Exec(ctx, "SELECT pg_advisory_unlock_shared($1)", gate)
		}
		return err
	})
}
