package idempotency

import (
	"math/rand/v2"
	"strings"
	"testing"

	"postgres.example/idempotency/internal/try"
)

var keyFields = []string{
	`"a"`, `a`, ` "a" `, "\ta", ``, ` `, `""`, `" "`, `"a b"`, `a b`, `a,b`, `"a","b"`, `"a,b"`, `"a\"b"`, `"a\\b"`, `"a\b"`,
	`a"b`, `a\b`, `a;b`, `"a`, `a"`, `"a"b`, `"a";v=1`, `"a"; v`, `"a";V`, `"a" ;v`, `"a";v=`, `"a";v=1.5`, `"a";v=1.`,
	`"a";v=1.2345`, `"a";v=1234567890123456`, `"a";v=-1`, `"a";v=tok/en:x`, `"a";v=?1`, `"a";v=?2`, `"a";v=:YQ==:`,
	`"a";v=:Y`, `"a";v=@1`, `"a";v=@1.5`, `"a";v=%"%41"`, `"a";v=%"%4"`, `"a";v=%"%ff"`, `"a";v="b";w=*x`, `"a";`,
	`pc%2D1`, `%22pc-1%22`, "\x7f", "\"\x01\"", "é", "\"é\"", strings.Repeat("k", 255), strings.Repeat("k", 256),
	`"` + strings.Repeat("k", 255) + `"`, `"` + strings.Repeat("k", 256) + `"`, `"` + strings.Repeat(`\\`, 255) + `"`,
}

// A key is read here as the server would read it.
func TestKeysAreReadAsByTheServer(t *testing.T) {
	pool := try.Pool(t)
	fields := append([]string{}, keyFields...)
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = `"";;==\:?@%*-.0159aAfz /,é` + "\t"
	for range 5000 {
		field := make([]byte, random.IntN(12))
		for i := range field {
			field[i] = alphabet[random.IntN(len(alphabet))]
		}
		if text := strings.ToValidUTF8(`"k"`+string(field), "x"); random.IntN(2) == 0 {
			fields = append(fields, text)
		} else {
			fields = append(fields, text[3:])
		}
	}
	rows, err := pool.Query(t.Context(), "SELECT f, idem_parse_key(f) FROM unnest($1::text[]) AS f", fields)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for rows.Next() {
		var field string
		var want *string
		if err := rows.Scan(&field, &want); err != nil {
			t.Fatal(err)
		}
		key, ok := ParseKey(field)
		if ok != (want != nil) || ok && key != *want {
			t.Errorf("%q: %q, %v; the server says %v", field, key, ok, want)
		}
		if ok {
			read++
			if again, ok := ParseKey(FormatKey(key)); !ok || again != key {
				t.Errorf("%q is written as %s", key, FormatKey(key))
			}
		}
	}
	if rows.Err() != nil || read < 100 {
		t.Fatal(rows.Err(), read)
	}
}
