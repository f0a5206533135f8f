package main

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"postgres.example/idempotency/ginidem"
)

func init() {
	gin.SetMode(gin.ReleaseMode)
	services["gin"] = func(protect protection) http.Handler {
		router := gin.New()
		router.POST("/payments", ginidem.Handler(protect, func(c *gin.Context) {
			if err := pay(c); err != nil {
				_ = c.Error(err)
				return
			}
			c.Status(http.StatusCreated)
		}))
		return router
	}
}
