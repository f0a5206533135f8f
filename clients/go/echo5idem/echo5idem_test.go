package echo5idem_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"postgres.example/idempotency"
	"postgres.example/idempotency/echo5idem"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

func TestEcho(t *testing.T) {
	pool := try.Pool(t)
	protect := pgxidem.New(pool).Transactional(idempotency.Route{
		Principal:      func(*http.Request) string { return t.Name() },
		Logger:         slog.New(slog.DiscardHandler),
		HandlerTimeout: 2 * time.Second,
	})
	runs, release := map[string]int{}, make(chan struct{})
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Response().Header().Set("X-Outer", "1")
			err := next(c)
			if response, _ := echo.UnwrapResponse(c.Response()); !response.Committed || err != nil {
				t.Error("nothing has reached the outer writer", err)
			}
			return err
		}
	})
	e.POST("/payments/:id", func(c *echo.Context) error {
		id := c.Param("id")
		runs[id]++
		ctx := c.Request().Context()
		if scope := idempotency.InfoOf(ctx).Scope; scope != "POST /payments/:id" {
			t.Error(scope)
		}
		var body struct{ Conflicts int }
		if err := c.Bind(&body); err != nil {
			return err
		}
		tx := pgxidem.Tx(ctx)
		if _, err := tx.Exec(ctx, try.Effect, t.Name(), id); err != nil {
			return err
		}
		switch {
		case runs[id] <= body.Conflicts:
			_, err := tx.Exec(ctx, "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$")
			return err
		case id == "broken":
			return errors.New("broken")
		case id == "bare":
			return c.NoContent(http.StatusAccepted)
		case id == "nothing":
			return idempotency.NothingHappened(echo.NewHTTPError(http.StatusConflict, "not yet"))
		case id == "slow":
			<-release
			return c.JSONBlob(http.StatusCreated, []byte(`{"late":true}`))
		case id == "declined":
			return echo.NewHTTPError(http.StatusPaymentRequired, "declined")
		}
		return c.JSONBlob(http.StatusCreated, []byte(`{"paid":"`+id+`"}`))
	}, echo5idem.Middleware(protect))
	server := httptest.NewServer(e)
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
	post("declined", `{}`).Check(t, 402, "{\"message\":\"declined\"}\n", false)
	post("declined", `{}`).Check(t, 402, "{\"message\":\"declined\"}\n", true)
	for range 2 {
		post("broken", `{}`).Check(t, 500, "{\"message\":\"Internal Server Error\"}\n", false)
	}
	for range 2 {
		if a := post("nothing", `{}`); a.Header.Get("Idempotent-Replayed") != "" || a.Status < 400 {
			t.Error(a)
		}
	}
	post("slow", `{}`).CheckProblem(t, 503, "handler-late")
	close(release)
	if runs["nothing"] != 2 || runs["7"] != 3 || runs["broken"] != 2 || try.Effects(t, pool) != "7 bare" {
		t.Error(runs, try.Effects(t, pool))
	}
}
