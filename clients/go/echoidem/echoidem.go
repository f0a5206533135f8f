// Package echoidem makes the middlewares of idempotency ones of echo 4.
package echoidem

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/linger"
)

// Middleware protects a route, or a group of them:
//
//	e.POST("/payments", pay, echoidem.Middleware(store.Transactional(route)))
//
// An error that a handler returns becomes an answer before the claim ends (echo.WrapMiddleware would
// let it pass by), and means that the handler has failed, as idempotency.Fail does. One of a status from
// 400 to 499 so is an answer that is kept without the work.
func Middleware(protect func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer, request := c.Response(), c.Request()
			defer func() { c.SetResponse(outer); c.SetRequest(request) }()
			protected := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				c.SetRequest(r)
				if err := next(c); err != nil {
					idempotency.Fail(r.Context(), err)
					c.Error(err)
				}
			}))
			// The route's pattern is the scope; a copy, for the request is not ours.
			named := request.WithContext(linger.On(request.Context()))
			named.Pattern = c.Path()
			protected.ServeHTTP(outer, named)
			return nil
		}
	}
}
