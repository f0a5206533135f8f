//go:build go1.25

package main

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"postgres.example/idempotency/echo5idem"
)

func init() {
	services["echo5"] = func(protect protection) http.Handler {
		router := echo.New()
		router.POST("/payments", func(c *echo.Context) error {
			if err := pay(c.Request().Context()); err != nil {
				return err
			}
			return c.NoContent(http.StatusCreated)
		}, echo5idem.Middleware(protect))
		return router
	}
}
