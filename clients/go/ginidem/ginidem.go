// Package ginidem puts the middlewares of idempotency before a handler of gin.
package ginidem

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/linger"
)

// Handler protects one handler:
//
//	router.POST("/payments", ginidem.Handler(store.Transactional(route), pay))
//
// It may run the handler several times, so it is no middleware of gin's, which can go on but once. An
// error that the handler leaves in c.Errors means that it has failed, as idempotency.Fail does, unless
// it has written an answer below 400. So c.AbortWithError(402, err) raises an answer, which is kept
// without the work. One by idempotency.NothingHappened always means that it has failed.
func Handler(protect func(http.Handler) http.Handler, handler gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, request, keys, left := c.Writer, c.Request, c.Keys, c.Errors
		defer func() { c.Writer, c.Request = outer, request }()
		protected := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner := &writer{ResponseWriter: w, outer: outer, status: http.StatusOK}
			c.Writer, c.Request = inner, r
			c.Keys, c.Errors = maps.Clone(keys), left[:len(left):len(left)]
			c.Set(idempotency.ContextName, r.Context())
			handler(c)
			last := c.Errors.Last()
			if len(c.Errors) > len(left) && (!inner.decided || inner.status >= 400 ||
				errors.Is(last.Err, idempotency.ErrNothingHappened)) {
				idempotency.Fail(r.Context(), last.Err)
			}
			if inner.decided {
				inner.WriteHeaderNow()
			}
		}))
		// The route's pattern is the scope; a copy, for the request is not ours.
		named := request.WithContext(linger.On(request.Context()))
		named.Pattern = c.FullPath()
		protected.ServeHTTP(outer, named)
	}
}

// writer is a gin.ResponseWriter over the one in which the middleware keeps the answer. As gin's own,
// it sends the status with the first byte, or at the end.
type writer struct {
	http.ResponseWriter
	outer   gin.ResponseWriter
	status  int
	size    int
	decided bool // the handler has named a status, or written
	written bool
}

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.written {
		w.status, w.decided = status, true
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.written {
		w.written, w.decided = true, true
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(data []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(data)
	w.size += n
	return n, err
}

func (w *writer) WriteString(text string) (int, error) { return w.Write([]byte(text)) }

func (w *writer) Status() int   { return w.status }
func (w *writer) Written() bool { return w.written }
func (w *writer) Flush()        { w.WriteHeaderNow() }

func (w *writer) Size() int {
	if !w.written {
		return -1
	}
	return w.size
}

func (w *writer) CloseNotify() <-chan bool { return w.outer.CloseNotify() }
func (w *writer) Pusher() http.Pusher      { return nil }

// Hijack is refused: an answer past the middleware could not be kept.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }
