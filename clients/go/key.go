package idempotency

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
)

const longestKey = 255

// ParseKey reads the value of an Idempotency-Key field as idem_parse_key does: a String of RFC 9651,
// whose parameters are checked and dropped, or a bare value of visible ASCII characters without
// quotes, backslashes, commas and semicolons.
func ParseKey(field string) (key string, ok bool) {
	field = strings.Trim(field, " \t")
	if strings.HasPrefix(field, `"`) {
		in := cursor{field}
		key, ok = in.text()
		ok = ok && in.parameters() && in.rest == ""
	} else {
		key, ok = field, all(field, isBare)
	}
	return key, ok && 1 <= len(key) && len(key) <= longestKey && strings.Trim(key, " ") != ""
}

// FormatKey writes a key as a String of RFC 9651.
func FormatKey(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// NewKey makes a key: a UUID of version 7, which grows with time. Store it before the first sending, so
// that a repetition after a crash has the same one.
func NewKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16|uint64(b[6])<<8|uint64(b[7]))
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

func isDigit(c byte) bool     { return '0' <= c && c <= '9' }
func isLower(c byte) bool     { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool     { return isLower(c | 0x20) }
func isPrintable(c byte) bool { return ' ' <= c && c <= '~' }
func isHex(c byte) bool       { return isDigit(c) || 'a' <= c && c <= 'f' }
func isBare(c byte) bool      { return isPrintable(c) && c != ' ' && !oneOf(c, `"\,;`) }
func oneOf(c byte, set string) bool {
	return strings.IndexByte(set, c) >= 0
}
func isToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || oneOf(c, "!#$%&'*+-.^_`|~")
}

func all(text string, class func(byte) bool) bool {
	for i := range len(text) {
		if !class(text[i]) {
			return false
		}
	}
	return true
}

// A cursor is the unread rest of a field. Its methods follow RFC 9651, section 4.2.
type cursor struct{ rest string }

// The next character, NUL at the end: no element of a field begins with NUL.
func (in *cursor) peek() byte {
	if in.rest == "" {
		return 0
	}
	return in.rest[0]
}

func (in *cursor) next() byte {
	c := in.peek()
	if in.rest != "" {
		in.rest = in.rest[1:]
	}
	return c
}

func (in *cursor) take(c byte) bool {
	if in.rest == "" || in.rest[0] != c {
		return false
	}
	in.rest = in.rest[1:]
	return true
}

func (in *cursor) skip(class func(byte) bool) (count int) {
	for count < len(in.rest) && class(in.rest[count]) {
		count++
	}
	in.rest = in.rest[count:]
	return count
}

func (in *cursor) text() (string, bool) {
	if !in.take('"') {
		return "", false
	}
	var out []byte
	for in.rest != "" {
		c := in.next()
		if c == '"' {
			return string(out), true
		}
		if !isPrintable(c) {
			return "", false
		}
		if c == '\\' {
			if c = in.next(); c != '"' && c != '\\' {
				return "", false
			}
		}
		out = append(out, c)
	}
	return "", false
}

func (in *cursor) parameters() bool {
	for in.take(';') {
		in.skip(func(c byte) bool { return c == ' ' })
		if !isLower(in.peek()) && in.peek() != '*' {
			return false
		}
		in.skip(func(c byte) bool { return isLower(c) || isDigit(c) || oneOf(c, "_-.*") })
		if in.take('=') && !in.bareItem() {
			return false
		}
	}
	return true
}

func (in *cursor) bareItem() bool {
	switch c := in.peek(); {
	case c == '"':
		_, ok := in.text()
		return ok
	case c == ':':
		return in.bytes()
	case c == '?':
		in.next()
		return in.take('0') || in.take('1')
	case c == '@': // a Date
		in.next()
		return in.number(false)
	case c == '%':
		return in.displayString()
	case isDigit(c) || c == '-':
		return in.number(true)
	case isAlpha(c) || c == '*':
		in.skip(func(c byte) bool { return isToken(c) || c == ':' || c == '/' })
		return true
	}
	return false
}

// An Integer has up to 15 digits; a Decimal up to 12, a point, and 1 to 3 more.
func (in *cursor) number(decimalToo bool) bool {
	in.take('-')
	whole := in.skip(isDigit)
	if !decimalToo || !in.take('.') {
		return 1 <= whole && whole <= 15
	}
	fraction := in.skip(isDigit)
	return 1 <= whole && whole <= 12 && 1 <= fraction && fraction <= 3
}

// Missing padding is allowed, as the RFC advises.
func (in *cursor) bytes() bool {
	in.take(':')
	in.skip(func(c byte) bool { return isAlpha(c) || isDigit(c) || c == '+' || c == '/' })
	in.skip(func(c byte) bool { return c == '=' })
	return in.take(':')
}

func (in *cursor) displayString() bool {
	if !in.take('%') || !in.take('"') {
		return false
	}
	for in.rest != "" {
		c := in.next()
		if c == '"' {
			return true
		}
		if !isPrintable(c) || c == '%' && !(isHex(in.next()) && isHex(in.next())) {
			return false
		}
	}
	return false
}
