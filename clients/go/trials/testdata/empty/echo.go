package main

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"postgres.example/idempotency/echoidem"
)

func init() {
	services["echo"] = func(protect protection) http.Handler {
		router := echo.New()
		router.POST("/payments", func(c echo.Context) error {
			if err := pay(c.Request().Context()); err != nil {
				return err
			}
			return c.NoContent(http.StatusCreated)
		}, echoidem.Middleware(protect))
		return router
	}
}
