package idempotency

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// bodyHeader says that the body of an answer was not kept.
const bodyHeader = "Idempotent-Body"

// An Answer is what a handler answered, or what is stored of it.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte

	rest    *os.File // what follows Body, of an answer too large to be kept
	omitted bool     // Status alone is kept, or was
}

// stored gives the arguments of idem_complete. An empty body is one, and not none.
func (a *Answer) stored() (headers string, body []byte) {
	object := map[string]any{}
	if a.omitted {
		object[bodyHeader] = "omitted"
	} else {
		body = append([]byte{}, a.Body...)
		for name, values := range a.Header {
			if !neverStored[http.CanonicalHeaderKey(name)] && !a.ofConnection(name) && len(values) > 0 {
				object[name] = oneOrMany(values)
			}
		}
	}
	text, _ := json.Marshal(object) // of strings alone, it never fails
	return string(text), body
}

func oneOrMany(values []string) any {
	if len(values) == 1 {
		return values[0]
	}
	return values
}

// ofConnection: Connection lists it as a field of this hop.
func (a *Answer) ofConnection(name string) bool {
	for _, list := range a.Header["Connection"] {
		for item := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(item), name) {
				return true
			}
		}
	}
	return false
}

// storedAnswer reads what idem_begin gave; nil for a failure without an answer of its own.
func storedAnswer(c *claimed) (*Answer, error) {
	if c.status == 0 && c.recorded == "failed" {
		return nil, nil
	}
	a := &Answer{Status: c.status, Header: http.Header{}, Body: c.body, omitted: c.omitted}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if c.headers == nil {
		return a, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(c.headers, &object); err != nil {
		return nil, err
	}
	for name, raw := range object {
		var one string
		var many []string
		if json.Unmarshal(raw, &one) == nil {
			many = []string{one}
		} else if err := json.Unmarshal(raw, &many); err != nil {
			return nil, err
		}
		a.Header[name] = many
	}
	return a, nil
}

// send writes an answer, over what outer handlers have put into the header; fields are of this
// sending alone.
func (a *Answer) send(w http.ResponseWriter, fields http.Header) {
	header := w.Header()
	maps.Copy(header, a.Header)
	maps.Copy(header, fields)
	if a.omitted && a.rest == nil && a.Body == nil {
		header.Set(bodyHeader, "omitted")
		header.Del("Content-Encoding")
		header["Content-Type"] = nil // an empty document of that type would be a lie
	}
	if bodyAllowed(a.Status) {
		header.Set("Content-Length", strconv.FormatInt(a.size(), 10))
		if _, known := a.Header["Content-Type"]; !known {
			header["Content-Type"] = nil // not guessed again
		}
	} else {
		header.Del("Content-Length")
	}
	w.WriteHeader(a.Status)
	if bodyAllowed(a.Status) {
		_, _ = w.Write(a.Body)
		if a.rest != nil {
			if _, err := a.rest.Seek(0, io.SeekStart); err == nil {
				_, _ = io.Copy(w, a.rest)
			}
		}
	}
}

func (a *Answer) size() int64 {
	size := int64(len(a.Body))
	if a.rest != nil {
		if info, err := a.rest.Stat(); err == nil {
			size += info.Size()
		}
	}
	return size
}

func (a *Answer) close() {
	if a != nil && a.rest != nil {
		_ = a.rest.Close()
	}
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// A recorder keeps what a handler writes until it is known whether it is to be sent. Flush has no
// effect: nothing is told before it is true. An answer over the limit goes to a file, if all but its
// status may be forgotten, else writing fails. What is written after the handler has returned is an
// error: the answer that is sent is the one that is stored.
type recorder struct {
	mu       sync.Mutex
	frozen   bool
	header   http.Header
	outer    http.Header // what was there before the handler
	answer   Answer
	limit    int64
	spill    bool
	written  bool
	tooLarge bool
}

func newRecorder(outer http.Header, limit int64, spill bool) *recorder {
	return &recorder{header: outer.Clone(), outer: outer.Clone(), limit: limit, spill: spill}
}

func (r *recorder) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return http.Header{}
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *recorder) Flush() { r.WriteHeader(http.StatusOK) }

// WriteHeader counts once; interim answers are dropped.
func (r *recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(status)
}

func (r *recorder) begin(status int) {
	if r.frozen || r.written || status < 200 {
		return
	}
	r.written = true
	r.answer.Status = status
	r.answer.Header = difference(r.header, r.outer)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return 0, ErrReturned
	}
	r.begin(http.StatusOK)
	if !bodyAllowed(r.answer.Status) {
		return 0, http.ErrBodyNotAllowed
	}
	room := max(r.limit-int64(len(r.answer.Body)), 0)
	if int64(len(b)) <= room {
		r.answer.Body = append(r.answer.Body, b...)
		return len(b), nil
	}
	r.tooLarge = true
	if !r.spill {
		return 0, ErrAnswerTooLarge
	}
	if r.answer.rest == nil {
		if err := r.openRest(); err != nil {
			return 0, err
		}
	}
	r.answer.Body = append(r.answer.Body, b[:room]...)
	n, err := r.answer.rest.Write(b[room:])
	return int(room) + n, err
}

func (r *recorder) openRest() error {
	file, err := os.CreateTemp("", "idempotency-*")
	if err != nil {
		return err
	}
	r.answer.rest, r.answer.omitted = file, true
	return os.Remove(file.Name())
}

func (r *recorder) hasBegun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written
}

// freeze ends the writing. It answers with false if the handler has not written anything.
func (r *recorder) freeze() (written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	written = r.written
	r.begin(http.StatusOK)
	r.frozen = true
	return written
}

// discard ends the writing of an answer that nothing reads.
func (r *recorder) discard() {
	r.freeze()
	r.answer.close()
}

// finish gives the answer that was frozen. What net/http would add on sending is added here, so that a
// replay has it, too.
func (r *recorder) finish() *Answer {
	a := &r.answer
	_, typed := a.Header["Content-Type"]
	if !typed && len(a.Body) > 0 && a.Header.Get("Content-Encoding") == "" {
		a.Header.Set("Content-Type", http.DetectContentType(a.Body))
	}
	return a
}

// difference gives the fields that a handler has set, as net/http would send them: in UTF-8 and
// without control characters, since others can't be stored.
func difference(header, outer http.Header) http.Header {
	result := http.Header{}
	for name, values := range header {
		if slices.Equal(values, outer[name]) && outer[name] != nil || name == "" || !all(name, isToken) {
			continue
		}
		canonical := http.CanonicalHeaderKey(name)
		if len(values) == 0 { // nil keeps net/http from adding the field
			result[canonical] = nil
		}
		for _, text := range values {
			result[canonical] = append(result[canonical], sanitize(text))
		}
	}
	return result
}

// sanitize replaces control characters, and bytes that are not UTF-8, which Map reads as U+FFFD.
func sanitize(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
	return strings.Trim(text, " \t")
}
