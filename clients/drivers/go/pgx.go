package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// page: transaction
const pgxBegin = `
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c)
  FROM idem_begin($1, $2::jsonb, scope => 'pay', principal => $3) AS c`
const pgxComplete = `SELECT idem_complete($1, 201, $2::bytea, $3::jsonb, scope => 'pay', principal => $4)`

func payByPgx(ctx context.Context, conn *pgx.Conn, key, tenant string, amount int) (*answer, error) {
	done := &answer{status: 201, headers: map[string]string{"Content-Type": "application/json"}}
	return done, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { // what is returned rolls back
		var outcome string
		var claim struct { // NULL needs pointers, slices or maps
			status  *int
			headers map[string]string
			body    []byte
			problem json.RawMessage
		}
		err := tx.QueryRow(ctx, pgxBegin, key, map[string]int{"amount": amount}, tenant).
			Scan(&outcome, &claim.status, &claim.headers, &claim.body, &claim.problem)
		switch {
		case err != nil:
			return err
		case claim.problem != nil:
			*done = answer{0, map[string]string{"Content-Type": "application/problem+json"}, claim.problem}
			return json.Unmarshal(claim.problem, &struct{ Status *int }{&done.status})
		case outcome == "replay":
			*done = answer{*claim.status, claim.headers, claim.body}
			return nil
		}
		var id int64
		if err := tx.QueryRow(ctx, "INSERT INTO payment (amount) VALUES ($1) RETURNING id", amount).Scan(&id); err != nil {
			return err
		}
		done.body = fmt.Appendf(nil, `{"id": %d}`, id)
		_, err = tx.Exec(ctx, pgxComplete, key, done.body, done.headers, tenant)
		return err
	})
}

// page: end

func codeOfPgx(err error) string {
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) {
		return refused.Code
	}
	return "an error of pgx"
}

func connectPgx(mode pgx.QueryExecMode, port string) *pgx.Conn {
	text := ""
	if port != "" {
		text = "host=127.0.0.1 port=" + port
	}
	config, err := pgx.ParseConfig(text)
	check(err)
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(context.Background(), config)
	check(err)
	return conn
}

func tryPgx() *driver {
	ctx := context.Background()
	conn := connectPgx(pgx.QueryExecModeCacheStatement, "")
	exec := connectPgx(pgx.QueryExecModeExec, "")
	defer conn.Close(ctx)
	defer exec.Close(ctx)
	d := &driver{Version: "pgx " + versionOf("github.com/jackc/pgx/v5"), code: codeOfPgx}
	d.rows = func(sql string) ([]map[string]any, error) {
		rows, err := conn.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToMap)
	}
	d.lookAtColumns()
	d.checkPay(func(key, tenant string, amount int) (*answer, error) { return payByPgx(ctx, conn, key, tenant, amount) })

	type statement struct {
		sql    string
		values []any
	}
	// Returns the value of the last statement; all are rolled back.
	rolledBack := func(conn *pgx.Conn, into any, statements ...statement) error {
		tx, err := conn.Begin(ctx)
		check(err)
		defer tx.Rollback(ctx)
		for i, one := range statements {
			if i == len(statements)-1 && into != nil {
				return tx.QueryRow(ctx, one.sql, one.values...).Scan(into)
			}
			if _, err := tx.Exec(ctx, one.sql, one.values...); err != nil {
				return err
			}
		}
		return nil
	}
	begunOn := func(conn *pgx.Conn, about, write, sql string, values ...any) {
		d.attempt(about, write, func() (string, error) {
			return "", rolledBack(conn, nil, statement{"SELECT outcome FROM idem_begin(" + sql + ")", values})
		})
	}
	begun := func(about, write, sql string, values ...any) { begunOn(conn, about, write, sql, values...) }
	completedOn := func(conn *pgx.Conn, about, write, sql string, values ...any) {
		d.attempt(about, write, func() (string, error) {
			var body []byte
			err := rolledBack(conn, &body, statement{"SELECT idem_begin('k')", nil},
				statement{"SELECT idem_complete('k', 200, " + sql + ")", values}, statement{"SELECT body FROM idem_get('k')", nil})
			if about == "headers" {
				return "", err
			}
			return shown(body), err
		})
	}
	completed := func(about, write, sql string, values ...any) { completedOn(conn, about, write, sql, values...) }
	leased := func(write, sql string, values ...any) {
		d.attempt("lease", write, func() (string, error) {
			var seconds int
			err := rolledBack(conn, &seconds, statement{leaseOf(sql), values})
			return fmt.Sprintf("%d seconds", seconds), err
		})
	}

	d.keys("`$1` with a `[]string`", []*string{nil}, func(keys any) ([]string, error) {
		tx, err := conn.Begin(ctx)
		check(err)
		defer tx.Rollback(ctx)
		rows, err := tx.Query(ctx, "SELECT idem_once_each($1, scope => 'keys')", keys)
		check(err)
		return pgx.CollectRows(rows, pgx.RowTo[string])
	})
	text, object := `{"a": 1}`, map[string]int{"a": 1}
	begun("key", "`$1` with a `string`", "$1", "k")
	begun("key", "`$1` with a `uuid.UUID`", "$1", uuid.New())
	begun("key", "`$1` with an `int`", "$1", 7)
	begun("request", "`$2` with a `string` of JSON", "'k', $1", text)
	begun("request", "`$2` with a `map` or a `struct`", "'k', $1", object)
	begun("request", "`$2` with `[]byte` of JSON", "'k', $1", []byte(text))
	begunOn(exec, "request", "`$2` with a `string` of JSON, `QueryExecModeExec`", "'k', $1", text)
	begunOn(exec, "request", "`$2::jsonb` with a `string` of JSON, `QueryExecModeExec`", "'k', $1::jsonb", text)
	begunOn(exec, "request", "`$2::jsonb` with a `map`, `QueryExecModeExec`", "'k', $1::jsonb", object)
	begunOn(exec, "request", "`$2::jsonb` with `[]byte` of JSON, `QueryExecModeExec`", "'k', $1::jsonb", []byte(text))
	// Two requests that differ in their last digit.
	longNumbers := func(write string, parse func(text string) any) {
		d.attempt("request", write, func() (outcome string, err error) {
			const begin = "SELECT outcome FROM idem_begin('k', $1)"
			first, second := parse(`{"a": 100000000000000000000000001}`), parse(`{"a": 100000000000000000000000002}`)
			err = rolledBack(conn, &outcome, statement{begin, []any{first}}, statement{"SELECT idem_complete('k', 201)", nil},
				statement{begin, []any{second}})
			return "`" + outcome + "` for the other number", err
		})
	}
	longNumbers("numbers of 27 digits, decoded into `any`", func(text string) (object any) {
		check(json.Unmarshal([]byte(text), &object))
		return
	})
	longNumbers("numbers of 27 digits in a `json.RawMessage`", func(text string) any { return json.RawMessage(text) })
	completed("body", "`$3::bytea` with `[]byte`", "$1::bytea", []byte(path))
	completed("body", "`$3` with `[]byte`", "$1", []byte(path))
	completed("body", "`$3` with `[]byte{0}`", "$1", []byte{0})
	completed("body", "`$3` with a `string`", "$1", path)
	completed("body", "`$3::bytea` with a `string`", "$1::bytea", path)
	completedOn(exec, "body", "`$3::bytea` with a `string`, `QueryExecModeExec`", "$1::bytea", path)
	completed("headers", "`$4` with an `http.Header`", "'', $1", http.Header{"X-A": {"1", "2"}})
	completed("headers", "`$4` with a `string` of JSON", "'', $1", `{"X-A": "1"}`)
	completed("headers", "`$4` with `map[string]int{\"X-A\": 1}`", "'', $1", map[string]int{"X-A": 1})
	leased("`$5` with `30`", "$1", 30)
	leased("`$5` with `\"30 s\"`", "$1", "30 s")
	leased("`$5` with `30 * time.Second`", "$1", 30*time.Second)
	leased("`$5 * interval '1 ms'` with `30000`", "$1 * interval '1 ms'", 30000)
	begun("principal", "`$1` with `nil`", "'k', principal => $1", nil)
	d.attempt("scan", "`status_code` of an `execute` into an `int`", func() (string, error) {
		var status int
		return "", rolledBack(conn, &status, statement{"SELECT status_code FROM idem_begin('k')", nil})
	})
	d.attempt("scan", "`headers` into an `http.Header`, where one is a string", func() (string, error) {
		var headers http.Header
		return "", rolledBack(conn, &headers, statement{`SELECT '{"X-A": "1"}'::jsonb`, nil})
	})
	d.token(func(token any) (extended bool, err error) {
		err = conn.QueryRow(ctx, "SELECT idem_extend('token', $1) > now()", token).Scan(&extended)
		return
	})
	d.autocommit("begin and complete on a `*pgx.Conn` or a pool")
	d.attempt("error", "`errors.As(err, &pgError)`, `pgError.Code`", func() (string, error) {
		_, err := conn.Exec(ctx, "SELECT idem_extend('token', $1)", 1)
		refused := (*pgconn.PgError)(nil)
		errors.As(err, &refused)
		return "`" + refused.Code + "`", nil
	})
	d.prepared(func() error {
		_, err := conn.Exec(ctx, "SELECT outcome FROM idem_begin($1) -- ten times", "prepared")
		return err
	})
	d.pooled("", func() pooled { return pooledPgx(pgx.QueryExecModeCacheStatement) })
	d.pooled("`QueryExecModeCacheDescribe`", func() pooled { return pooledPgx(pgx.QueryExecModeCacheDescribe) })
	d.pooled("`QueryExecModeExec`", func() pooled { return pooledPgx(pgx.QueryExecModeExec) })
	return d
}

type pgxClient struct {
	conn *pgx.Conn
	tx   pgx.Tx
}

func pooledPgx(mode pgx.QueryExecMode) pooled {
	return &pgxClient{conn: connectPgx(mode, os.Getenv("POOLER_PORT"))}
}

func (c *pgxClient) begin() (err error) {
	c.tx, err = c.conn.Begin(context.Background())
	return
}

func (c *pgxClient) claim(key, scope string) (claimed string, err error) {
	err = c.tx.QueryRow(context.Background(), "SELECT scope FROM idem_begin($1, scope => '"+scope+"')", key).Scan(&claimed)
	return
}

func (c *pgxClient) commit() error { return c.tx.Commit(context.Background()) }
func (c *pgxClient) close()        { c.conn.Close(context.Background()) }
