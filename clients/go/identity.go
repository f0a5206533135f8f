package idempotency

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// identity is what makes two requests the same one. All drivers take text for every type, so lists
// and JSON travel as text.
type identity struct {
	json           *string // the body, if it is JSON
	digest         []byte  // of a body that is not, or of the option Fingerprint
	method, target *string
	mediaType      string
	exclude        []string
}

// becomesDigest says whether the server has refused JSON for what jsonb can't hold, \u0000 or a number
// beyond numeric. Then the body counts byte by byte, like one that is not JSON.
func (i *identity) becomesDigest(err error) bool {
	if i.json == nil || !stateIn(err, "22P05", "22003") {
		return false
	}
	if i.digest == nil {
		i.digest = digest(value(i.method), value(i.target), i.mediaType, part{content: []byte(*i.json)})
	}
	i.json = nil
	return true
}

// readBody reads a body of at most limit bytes. Whatever decodes it has to stand before the
// middleware: what is still encoded has no content that could be compared.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) (_ []byte, problem string) {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return nil, problemCoding
		}
	}
	if r.ContentLength > limit {
		return nil, problemTooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, problemTooLarge
	}
	if err != nil {
		return nil, problemBody
	}
	return body, ""
}

// identify says what a request is: method, target with the query string, and body, or what the
// route's Fingerprint makes of it.
func (route *Route) identify(r *http.Request, body []byte) identity {
	method, target := r.Method, target(r)
	mediaType, isJSON := mediaTypeOf(r)
	i := identity{method: &method, target: &target, mediaType: mediaType, exclude: route.Exclude}
	if isJSON && len(body) > 0 {
		text := string(body)
		i.json = &text
	} else {
		i.digest = digest(method, target, mediaType, partsOf(r, mediaType, body)...)
	}
	if route.Fingerprint != nil {
		sum := sha256.Sum256(route.Fingerprint(withBody(r, body)))
		i.digest = sum[:]
	}
	return i
}

// The target as it was sent, whatever a router made of the path since.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// mediaTypeOf gives it in lower case and without parameters.
func mediaTypeOf(r *http.Request) (mediaType string, isJSON bool) {
	mediaType = plainMediaType(r.Header.Get("Content-Type"))
	return mediaType, mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// digest is as docs/fingerprint.md has it, of more parts. One that is missing is not an empty one.
func digest(method, target, mediaType string, body ...part) []byte {
	hash := sha256.New()
	_, _ = io.WriteString(hash, "idempotency fingerprint 1\n")
	write := func(text *string) {
		if text == nil {
			_, _ = io.WriteString(hash, "-\n")
			return
		}
		_, _ = fmt.Fprintf(hash, "%d:%s\n", len(*text), *text)
	}
	write(&method)
	write(&target)
	write(notEmpty(mediaType))
	for _, p := range body {
		if p.ofForm {
			write(p.name)
			write(p.fileName)
			write(notEmpty(p.mediaType))
		}
		content := string(p.content)
		write(&content)
	}
	return hash.Sum(nil)
}

func notEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// withBody gives a copy of a request whose body can be read, from its beginning.
func withBody(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	return r
}
