package ginidem_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"postgres.example/idempotency"
	"postgres.example/idempotency/ginidem"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

func TestGin(t *testing.T) {
	pool := try.Pool(t)
	protect := pgxidem.New(pool).Transactional(idempotency.Route{
		Principal:      func(*http.Request) string { return t.Name() },
		Logger:         slog.New(slog.DiscardHandler),
		HandlerTimeout: 2 * time.Second,
	})
	runs, release := map[string]int{}, make(chan struct{})
	gin.SetMode(gin.TestMode)
	router := gin.New()
	router.Use(func(c *gin.Context) {
		c.Header("X-Outer", "1")
		c.Next()
		if !c.Writer.Written() {
			t.Error("nothing has reached the outer writer")
		}
	})
	router.POST("/payments/:id", ginidem.Handler(protect, func(c *gin.Context) {
		id := c.Param("id")
		runs[id]++
		if _, marked := c.Get("marked"); marked {
			t.Error("a run has left something to the next")
		}
		c.Set("marked", true)
		if scope := idempotency.InfoOf(c.Request.Context()).Scope; scope != "POST /payments/:id" {
			t.Error(scope)
		}
		var body struct{ Conflicts int }
		if err := c.BindJSON(&body); err != nil {
			return
		}
		tx := pgxidem.Tx(c)
		if tx != pgxidem.Tx(c.Request.Context()) || idempotency.InfoOf(c).Key != id {
			t.Error("gin's context has something else", tx)
		}
		if _, err := tx.Exec(c.Request.Context(), try.Effect, t.Name(), id); err != nil {
			_ = c.Error(err)
			return
		}
		switch {
		case runs[id] <= body.Conflicts:
			_, err := tx.Exec(c.Request.Context(), "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$")
			_ = c.AbortWithError(http.StatusInternalServerError, err)
		case id == "broken":
			_ = c.Error(errors.New("broken"))
		case id == "bare":
			c.Status(http.StatusAccepted)
		case id == "nothing":
			c.JSON(http.StatusConflict, gin.H{"later": true})
			_ = c.Error(idempotency.NothingHappened(errors.New("not yet")))
		case id == "slow":
			<-release
			c.JSON(http.StatusCreated, gin.H{"late": true})
		case id == "raised":
			_ = c.AbortWithError(http.StatusConflict, errors.New("no funds"))
		case id == "declined":
			c.AbortWithStatusJSON(http.StatusPaymentRequired, gin.H{"declined": true})
		default:
			c.JSON(http.StatusCreated, gin.H{"paid": id})
		}
	}))
	server := httptest.NewServer(router)
	defer server.Close()
	post := func(id, body string) try.Answer { return try.Post(t, server.URL+"/payments/"+id, id, body) }

	first := post("7", `{"conflicts": 2}`)
	first.Check(t, 201, `{"paid":"7"}`, false)
	if again := post("7", `{"conflicts": 2}`); again.Header.Get("X-Outer") != "1" ||
		again.Header.Get("Content-Type") != first.Header.Get("Content-Type") {
		t.Error(again)
	} else {
		again.Check(t, 201, `{"paid":"7"}`, true)
	}
	post("bare", `{}`).Check(t, 202, "", false)
	post("bare", `{}`).Check(t, 202, "", true)
	post("declined", `{}`).Check(t, 402, `{"declined":true}`, false)
	post("declined", `{}`).Check(t, 402, `{"declined":true}`, true)
	post("raised", `{}`).Check(t, 409, "", false)
	post("raised", `{}`).Check(t, 409, "", true)
	post("unbound", `[]`).Check(t, 400, "", false)
	post("unbound", `[]`).Check(t, 400, "", true)
	post("broken", `{}`).CheckProblem(t, 500, "internal")
	post("broken", `{}`).CheckProblem(t, 500, "internal")
	for range 2 {
		post("nothing", `{}`).Check(t, 409, `{"later":true}`, false)
	}
	post("slow", `{}`).CheckProblem(t, 503, "handler-late")
	close(release)
	if runs["nothing"] != 2 || runs["7"] != 3 || runs["broken"] != 2 || try.Effects(t, pool) != "7 bare declined" {
		t.Error(runs, try.Effects(t, pool))
	}
}
