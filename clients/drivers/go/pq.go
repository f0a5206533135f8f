package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// page: transaction
const pqBegin = `
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c)
  FROM idem_begin($1, $2::jsonb, scope => 'pay', principal => $3) AS c`
const pqComplete = `SELECT idem_complete($1, 201, $2::bytea, $3::jsonb, scope => 'pay', principal => $4)`

func payByPq(ctx context.Context, db *sql.DB, key, tenant string, amount int) (*answer, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // nothing, once it is committed
	var outcome string
	var status sql.NullInt32
	var headers, body, problem []byte
	request := fmt.Sprintf(`{"amount": %d}`, amount)
	// QueryRow reads to the end; rows that are left open would block the transaction.
	err = tx.QueryRowContext(ctx, pqBegin, key, request, tenant).Scan(&outcome, &status, &headers, &body, &problem)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		answer := &answer{headers: map[string]string{"Content-Type": "application/problem+json"}, body: problem}
		return answer, json.Unmarshal(problem, &struct{ Status *int }{&answer.status})
	}
	done := &answer{status: int(status.Int32), body: body}
	if outcome == "replay" {
		return done, json.Unmarshal(headers, &done.headers)
	}
	var id int64
	if err := tx.QueryRowContext(ctx, "INSERT INTO payment (amount) VALUES ($1) RETURNING id", amount).Scan(&id); err != nil {
		return nil, err
	}
	done = &answer{201, map[string]string{"Content-Type": "application/json"}, fmt.Appendf(nil, `{"id": %d}`, id)}
	kept, err := json.Marshal(done.headers)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, pqComplete, key, done.body, string(kept), tenant); err != nil {
		return nil, err
	}
	return done, tx.Commit()
}

// page: end

func codeOfPq(err error) string {
	if refused := (*pq.Error)(nil); errors.As(err, &refused) {
		return string(refused.Code)
	}
	return "an error of database/sql or of the driver"
}

// A pool of one connection: all tries share a session.
func openPq(options string) *sql.DB {
	db, err := sql.Open("postgres", "sslmode=disable "+options)
	check(err)
	db.SetMaxOpenConns(1)
	return db
}

func dictionaries(rows *sql.Rows) (found []map[string]any, err error) {
	defer rows.Close()
	names, err := rows.Columns()
	check(err)
	for rows.Next() {
		values, places := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			places[i] = &values[i]
		}
		check(rows.Scan(places...))
		row := map[string]any{}
		for i, name := range names {
			row[name] = values[i]
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

func tryPq() *driver {
	ctx := context.Background()
	db, binary := openPq(""), openPq("binary_parameters=yes")
	defer db.Close()
	defer binary.Close()
	d := &driver{Version: "lib/pq " + versionOf("github.com/lib/pq"), code: codeOfPq}
	d.rows = func(sql string) ([]map[string]any, error) {
		rows, err := db.Query(sql)
		if err != nil {
			return nil, err
		}
		return dictionaries(rows)
	}
	d.lookAtColumns()
	d.checkPay(func(key, tenant string, amount int) (*answer, error) { return payByPq(ctx, db, key, tenant, amount) })

	type statement struct {
		sql    string
		values []any
	}
	rolledBack := func(db *sql.DB, into any, statements ...statement) error {
		tx, err := db.Begin()
		check(err)
		defer tx.Rollback()
		for i, one := range statements {
			if i == len(statements)-1 && into != nil {
				return tx.QueryRow(one.sql, one.values...).Scan(into)
			}
			if _, err := tx.Exec(one.sql, one.values...); err != nil {
				return err
			}
		}
		return nil
	}
	begunOn := func(db *sql.DB, about, write, sql string, values ...any) {
		d.attempt(about, write, func() (string, error) {
			return "", rolledBack(db, nil, statement{"SELECT outcome FROM idem_begin(" + sql + ")", values})
		})
	}
	begun := func(about, write, sql string, values ...any) { begunOn(db, about, write, sql, values...) }
	completed := func(about, write, sql string, values ...any) {
		d.attempt(about, write, func() (string, error) {
			var body []byte
			err := rolledBack(db, &body, statement{"SELECT idem_begin('k')", nil},
				statement{"SELECT idem_complete('k', 200, " + sql + ")", values}, statement{"SELECT body FROM idem_get('k')", nil})
			if about == "headers" {
				return "", err
			}
			return shown(body), err
		})
	}
	leased := func(write, sql string, values ...any) {
		d.attempt("lease", write, func() (string, error) {
			var seconds int
			err := rolledBack(db, &seconds, statement{leaseOf(sql), values})
			return fmt.Sprintf("%d seconds", seconds), err
		})
	}

	each := func(keys any) (found []string, err error) {
		tx, err := db.Begin()
		check(err)
		defer tx.Rollback()
		rows, err := tx.Query("SELECT idem_once_each($1, scope => 'keys')", keys)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var key string
			check(rows.Scan(&key))
			found = append(found, key)
		}
		return found, rows.Err()
	}
	d.keys("`$1` with `pq.Array` of a `[]string`", []sql.NullString{{}}, func(keys any) ([]string, error) { return each(pq.Array(keys)) })
	d.attempt("keys", "`$1` with a `[]string`", func() (string, error) {
		_, err := each([]string{"b", "a"})
		return "", err
	})
	text, object := `{"a": 1}`, map[string]int{"a": 1}
	begun("key", "`$1` with a `string`", "$1", "k")
	begun("key", "`$1` with a `uuid.UUID`", "$1", uuid.New())
	begun("key", "`$1` with an `int`", "$1", 7)
	begun("request", "`$2` with a `string` of JSON", "'k', $1", text)
	begun("request", "`$2` with a `map`", "'k', $1", object)
	begun("request", "`$2` with `[]byte` of JSON", "'k', $1", []byte(text))
	begunOn(binary, "request", "`$2` with `[]byte` of JSON, `binary_parameters=yes`", "'k', $1", []byte(text))
	completed("body", "`$3::bytea` with `[]byte`", "$1::bytea", []byte(path))
	completed("body", "`$3` with `[]byte`", "$1", []byte(path))
	completed("body", "`$3` with `[]byte{0}`", "$1", []byte{0})
	completed("body", "`$3` with a `string`", "$1", path)
	completed("body", "`$3::bytea` with a `string`", "$1::bytea", path)
	completed("headers", "`$4` with a `string` or `[]byte` of JSON", "'', $1", `{"X-A": "1"}`)
	completed("headers", "`$4` with a `map`", "'', $1", map[string]string{"X-A": "1"})
	completed("headers", "`$4` with `{\"X-A\": 1}`", "'', $1", `{"X-A": 1}`)
	leased("`$5` with `30`", "$1", 30)
	leased("`$5` with `\"30 s\"`", "$1", "30 s")
	leased("`$5` with `time.Second`", "$1", time.Second)
	leased("`$5` with `30 * time.Second`", "$1", 30*time.Second)
	leased("`$5 * interval '1 ms'` with `30000`", "$1 * interval '1 ms'", 30000)
	begun("principal", "`$1` with `nil`, or a `sql.NullString` that is not valid", "'k', principal => $1", sql.NullString{})
	d.attempt("scan", "`status_code` of an `execute` into an `int`", func() (string, error) {
		var status int
		return "", rolledBack(db, &status, statement{"SELECT status_code FROM idem_begin('k')", nil})
	})
	d.attempt("open rows", "`tx.Query` of `idem_begin`, its rows not closed, then another statement", func() (string, error) {
		tx, err := db.Begin()
		check(err)
		defer tx.Rollback()
		rows, err := tx.Query("SELECT outcome FROM idem_begin('k')")
		check(err)
		defer rows.Close()
		_, err = tx.Exec("SELECT 1")
		return "", err
	})
	d.token(func(token any) (extended bool, err error) {
		err = db.QueryRow("SELECT idem_extend('token', $1) > now()", token).Scan(&extended)
		return
	})
	d.autocommit("begin and complete on a `*sql.DB`")
	d.attempt("error", "`errors.As(err, &pqError)`, `pqError.Code`", func() (string, error) {
		_, err := db.Exec("SELECT idem_extend('token', $1)", 1)
		refused := (*pq.Error)(nil)
		errors.As(err, &refused)
		return "`" + string(refused.Code) + "`", nil
	})
	d.prepared(func() error {
		_, err := db.Exec("SELECT outcome FROM idem_begin($1) -- ten times", "prepared")
		return err
	})
	d.pooled("", func() pooled { return pooledPq("") })
	d.pooled("`binary_parameters=yes`", func() pooled { return pooledPq("binary_parameters=yes") })
	return d
}

type pqClient struct {
	db *sql.DB
	tx *sql.Tx
}

func pooledPq(options string) pooled {
	return &pqClient{db: openPq("host=127.0.0.1 port=" + os.Getenv("POOLER_PORT") + " " + options)}
}

func (c *pqClient) begin() (err error) {
	c.tx, err = c.db.Begin()
	return
}

func (c *pqClient) claim(key, scope string) (claimed string, err error) {
	err = c.tx.QueryRow("SELECT scope FROM idem_begin($1, scope => '"+scope+"')", key).Scan(&claimed)
	return
}

func (c *pqClient) commit() error { return c.tx.Commit() }
func (c *pqClient) close()        { c.db.Close() }
