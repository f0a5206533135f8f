// Programs that try PostgreSQL's drivers for Go; docs/drivers/go.md shows their output.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

const columns = `outcome key scope principal token attempt status status_code headers body body_omitted error
	recovery_point state holder retry_after created_at finished_at lease_until expires_at`

// JSON with a backslash in it; decoding its escape leaves invalid JSON.
const path = `{"path":"C:\\dir"}`

type try struct {
	About string `json:"about"`
	Write string `json:"write"`
	Gives string `json:"gives"`
}

// A driver, and the observations about it.
type driver struct {
	Name    string            `json:"driver"`
	Version string            `json:"version"`
	Columns map[string]string `json:"columns"`
	Tries   []try             `json:"tries"`

	// Runs a statement without parameters, in autocommit, always on the same connection.
	rows func(sql string) ([]map[string]any, error)
	// The SQLSTATE, or another description of the error.
	code func(error) string
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (d *driver) look(sql string) map[string]any {
	rows, err := d.rows(sql)
	check(err)
	for name, value := range rows[0] {
		if _, seen := d.Columns[name]; value != nil && !seen {
			d.Columns[name] = strings.NewReplacer("interface {}", "any", "uint8", "byte").Replace(fmt.Sprintf("%T", value))
		}
	}
	return rows[0]
}

func (d *driver) lookAtColumns() {
	const names = "'columns-1', scope => 'columns', principal => 'acme'"
	const begin = "SELECT * FROM idem_begin(" + names + ", lease => '1 minute', holder => 'me')"
	d.Columns = map[string]string{}
	ended := func(function, arguments string, token any) {
		_, err := d.rows(fmt.Sprintf("SELECT %s('columns-1', %s, scope => 'columns', principal => 'acme', token => %v)", function, arguments, token))
		check(err)
	}
	token := d.look(begin)["token"]
	d.look(begin)
	ended("idem_checkpoint", `'charged', '{"charge": 1}'`, token)
	ended("idem_fail", "'no', retryable => true, retry_after => '0'", token)
	token = d.look(begin)["token"]
	ended("idem_complete", `201, '{"id": 1}', '{"X-A": ["1", "2"]}'`, token)
	d.look(begin)
	for _, name := range strings.Fields(columns) {
		if d.Columns[name] == "" {
			panic("nothing was seen in column " + name)
		}
	}
}

// An empty text means that it works.
func (d *driver) attempt(about, write string, work func() (string, error)) {
	gives, err := work()
	if err != nil {
		gives = d.code(err)
	} else if gives == "" {
		gives = "works"
	}
	d.Tries = append(d.Tries, try{about, write, gives})
}

func (d *driver) value(sql string) any {
	rows, err := d.rows(sql)
	check(err)
	for _, value := range rows[0] {
		return value
	}
	return nil
}

func (d *driver) token(extend func(token any) (bool, error)) {
	token := d.look("SELECT token FROM idem_begin('token', lease => '1 minute')")["token"]
	d.attempt("token", "the token as it came", func() (string, error) {
		extended, err := extend(token)
		if err == nil && !extended {
			err = fmt.Errorf("not extended")
		}
		return "", err
	})
}

// each is idem_once_each, and its rows; the second value is an array with a null.
func (d *driver) keys(write string, withNull any, each func(keys any) ([]string, error)) {
	tried := func(write string, keys any, wanted ...string) {
		d.attempt("keys", write, func() (string, error) {
			found, err := each(keys)
			if err == nil && !slices.Equal(found, wanted) {
				err = fmt.Errorf("%q", found)
			}
			return "", err
		})
	}
	tried(write, []string{"b", "a", "b"}, "b", "a")
	tried("the same, empty", []string{})
	tried("the same, `nil`", []string(nil))
	tried("the same, with a null in it", withNull)
}

func (d *driver) autocommit(write string) {
	d.value("SELECT outcome FROM idem_begin('autocommit')")
	_, err := d.rows("SELECT idem_complete('autocommit', 200)")
	gives := fmt.Sprintf("%s, and the key stays `%v`", d.code(err), d.value("SELECT status FROM idem_get('autocommit')"))
	d.Tries = append(d.Tries, try{"autocommit", write, gives})
}

// The number of prepared statements in the session whose text contains "ten times".
func (d *driver) prepared(call func() error) {
	for range 10 {
		check(call())
	}
	count := d.value("SELECT count(*) FROM pg_prepared_statements WHERE position('ten' || ' times' IN statement) > 0")
	left := fmt.Sprintf("%v prepared statements stay in the session", count)
	if count == int64(1) {
		left = "1 prepared statement stays in the session"
	}
	d.Tries = append(d.Tries, try{"prepared", "the same statement ten times", left})
}

// A client of the pooler. It claims in a separate scope and returns the scope that the server reported.
type pooled interface {
	begin() error
	claim(key, scope string) (string, error)
	commit() error
	close()
}

// Through a pooler in transaction mode; the other client takes the server connection that was used last.
func (d *driver) pooled(write string, connect func() pooled) {
	claim := func(client pooled, scope string) error {
		claimed, err := client.claim("key", scope)
		if err == nil && claimed != scope {
			err = fmt.Errorf("%s was claimed for %s", claimed, scope)
		}
		return err
	}
	if write != "" {
		write = ", " + write
	}
	d.attempt("pooler", "behind a pooler in transaction mode"+write, func() (string, error) {
		client, other := connect(), connect()
		defer client.close()
		defer other.close()
		steps := []func() error{
			client.begin, func() error { return claim(client, "mine") }, client.commit,
			other.begin, func() error { return claim(other, "yours") }, other.commit,
			other.begin, func() error { return claim(other, "yours") },
			client.begin, func() error { return claim(client, "mine") }, client.commit,
			other.commit,
		}
		for range 10 {
			for _, step := range steps {
				if err := step(); err != nil {
					return "", err
				}
			}
		}
		return "", nil
	})
}

// A statement that returns the seconds of this lease.
func leaseOf(sql string) string {
	return "SELECT round(extract(epoch FROM lease_until - created_at))::integer FROM idem_begin('k', lease => " + sql + ")"
}

// A body that came back: unchanged, or how it differs.
func shown(stored []byte) string {
	if string(stored) == path {
		return "works"
	}
	return fmt.Sprintf("the body is `%s`", stored)
}

// The code on the page works.
func (d *driver) checkPay(pay func(key, tenant string, amount int) (*answer, error)) {
	first, err := pay("pay-1", "acme", 100)
	check(err)
	again, err := pay("pay-1", "acme", 100)
	check(err)
	other, err := pay("pay-1", "acme", 200)
	check(err)
	if first.status != 201 || !bytes.Contains(first.body, []byte(`"id"`)) || again.status != 201 ||
		!bytes.Equal(first.body, again.body) || other.status != 422 || !bytes.Contains(other.body, []byte("mismatch")) {
		panic(fmt.Sprintf("%+v, %+v, %+v", first, again, other))
	}
	if d.value("SELECT count(*) FROM payment") != int64(1) {
		panic("not one payment")
	}
}

// The body that a handler sends.
type answer struct {
	status  int
	headers map[string]string
	body    []byte
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	panic(module + " is not built in")
}

func main() {
	log.SetOutput(os.Stderr)
	programs := map[string]func() *driver{"pgx": tryPgx, "pq": tryPq}
	d := programs[os.Args[1]]()
	d.Name = "go/" + os.Args[1]
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(d))
}
