package idempotency

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
)

// A part of a form, or a whole body. Each sending of a form has another boundary, so its parts identify
// it, and not its bytes.
type part struct {
	ofForm         bool
	name, fileName *string
	mediaType      string
	content        []byte
}

// partsOf a body: the whole, where it is no form.
func partsOf(r *http.Request, mediaType string, body []byte) []part {
	if mediaType == "multipart/form-data" {
		if boundary := parameterOf(r.Header.Get("Content-Type"), "boundary"); boundary != nil && *boundary != "" {
			if parts := formParts(*boundary, body); parts != nil {
				return parts
			}
		}
	}
	return []part{{content: body}}
}

// formParts is nil where the body is no form. Package mime/multipart would leave out what stands before
// and behind the parts, which counts.
func formParts(boundary string, body []byte) (parts []part) {
	mark := []byte("\r\n--" + boundary)
	rest, found := bytes.CutPrefix(append([]byte("\r\n"), body...), mark)
	if !found {
		return nil
	}
	for {
		if end, last := bytes.CutPrefix(rest, []byte("--")); last {
			if len(end) > 2 {
				return nil
			}
			return parts
		}
		one, next, found := bytes.Cut(rest, mark)
		if !found {
			return nil
		}
		p := formPart(one)
		if p == nil {
			return nil
		}
		parts, rest = append(parts, *p), next
	}
}

// formPart reads a part from the end of its boundary's line on.
func formPart(text []byte) *part {
	text, found := bytes.CutPrefix(text, []byte("\r\n"))
	head, content, ended := bytes.Cut(text, []byte("\r\n\r\n"))
	if !found || !ended {
		return nil
	}
	disposition := fieldOf(head, "content-disposition")
	if disposition == nil {
		return nil
	}
	p := &part{ofForm: true, name: parameterOf(*disposition, "name"), fileName: parameterOf(*disposition, "filename"),
		content: content}
	if kind := fieldOf(head, "content-type"); kind != nil {
		p.mediaType = plainMediaType(*kind)
	}
	return p
}

func fieldOf(head []byte, name string) *string {
	for _, line := range strings.Split(string(head), "\r\n") {
		if field, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(strings.TrimSpace(field), name) {
			value = strings.TrimSpace(value)
			return &value
		}
	}
	return nil
}

// The parameters of a field: a name, and a value in quotes or without.
var parameters = regexp.MustCompile(`(?s);[ \t]*([^=;" \t]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;" \t]*))`)

var quotedPairs = regexp.MustCompile(`\\(["\\])`)

func parameterOf(value, name string) *string {
	for _, found := range parameters.FindAllStringSubmatchIndex(value, -1) {
		if !strings.EqualFold(value[found[2]:found[3]], name) {
			continue
		}
		if found[4] >= 0 {
			text := strings.ToValidUTF8(quotedPairs.ReplaceAllString(value[found[4]:found[5]], "$1"), "\uFFFD")
			return &text
		}
		text := strings.ToValidUTF8(value[found[6]:found[7]], "\uFFFD")
		return &text
	}
	return nil
}

// plainMediaType is type and subtype in lower case.
func plainMediaType(field string) string {
	kind, _, _ := strings.Cut(field, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}
