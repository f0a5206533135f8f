package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
)

// uncertain is a leased route whose claims are unknown where they fall silent.
func (b *bench) uncertain() idempotency.Route {
	try.Exec(b, b.pool, `SELECT idem_policy_set($1, on_lease_expiry => 'unknown', retry_base => '1 us',
		retry_cap => '1 us')`, b.Name())
	route := b.route()
	route.Scope = b.Name()
	return route
}

// unknown compares what operators see of the record.
func (b *bench) checkUnknown(key, reason, reference string) {
	b.Helper()
	var found string
	err := b.pool.QueryRow(b.Context(), `SELECT concat_ws(', ', status, error, reference)
		FROM idem_get($2, scope => $1, principal => $1)`, b.Name(), key).Scan(&found)
	want := strings.Join(append([]string{"unknown", reason}, strings.Fields(reference)...), ", ")
	if err != nil || found != want {
		b.Errorf("the record is %q %v; want %q", found, err, want)
	}
}

// What does not prove that nothing happened makes the claim unknown where silence does.
func TestAnEndThatProvesNothingIsUnknown(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.uncertain()
		route.MaxAnswerBytes = 10
		var runs atomic.Int32
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			runs.Add(1)
			switch idempotency.InfoOf(r.Context()).Key {
			case "error":
				return errors.New("no answer")
			case "status":
				w.WriteHeader(http.StatusBadGateway)
			case "large":
				_, err := w.Write(make([]byte, 11))
				return err
			case "panic":
				panic(http.ErrAbortHandler)
			}
			return nil
		})
		try.Post(b, url, "error", `{}`).CheckProblem(b, 500, "internal")
		try.Post(b, url, "status", `{}`).Check(b, 502, "", false)
		try.Post(b, url, "large", `{}`).CheckProblem(b, 500, "answer-too-large")
		try.Broken(b, url, "panic", `{}`)
		b.until("SELECT status <> 'in_progress' FROM idem_get('panic', scope => $1, principal => $1)")
		for key, reason := range map[string]string{"error": "no answer", "status": "status 502",
			"large": "idempotency: the answer is too large to be kept", "panic": "the handler panicked"} {
			b.checkUnknown(key, reason, "")
			again := try.Post(b, url, key, `{}`)
			again.CheckProblem(b, 409, "unknown")
			if again.Header.Get("Retry-After") == "" {
				b.Error(again.Header)
			}
		}
		if runs.Load() != 4 {
			b.Error(runs.Load(), "runs")
		}
	})
}

// A handler that says that nothing happened may be run again.
func TestNothingHappened(t *testing.T) {
	withEach(t, func(b *bench) {
		var runs atomic.Int32
		refused := errors.New("the gateway refuses connections")
		url := b.serve(b.leased(b.uncertain()), func(w http.ResponseWriter, r *http.Request) error {
			switch runs.Add(1) {
			case 1:
				return fmt.Errorf("not sent: %w", idempotency.NothingHappened(refused))
			case 2:
				w.WriteHeader(http.StatusServiceUnavailable)
				return idempotency.NothingHappened(refused)
			}
			return idempotency.NothingHappened(nil)
		})
		try.Post(b, url, "k", `{}`).CheckProblem(b, 500, "internal")
		b.due()
		try.Post(b, url, "k", `{}`).Check(b, 503, "", false)
		b.due()
		try.Post(b, url, "k", `{}`).Check(b, 200, "", false)
		try.Post(b, url, "k", `{}`).Check(b, 200, "", true)
		if err := idempotency.NothingHappened(refused); !errors.Is(err, refused) || err.Error() != refused.Error() {
			b.Error(err)
		}
	})
}

// After Unknown the handler's answer is told and not stored, whatever the policy says, and however
// long the handler goes on.
func TestUnknown(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.Scope, route.Lease = b.Name(), time.Second
		route.OnLeaseLost = func(context.Context, idempotency.Event) { b.Error("the lease is lost") }
		var runs atomic.Int32
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			runs.Add(1)
			key := idempotency.InfoOf(r.Context()).Key
			spent, cancel := context.WithCancel(r.Context())
			cancel()
			if err := b.unknown(spent, errors.New("no answer in 30\x00s"), "ch_1"); err != nil {
				b.Error(err)
			}
			if err := b.unknown(r.Context(), errors.New("again"), "ch_2"); err != nil {
				b.Error(err)
			}
			if _, err := b.step(r.Context(), "late", "late"); err == nil {
				b.Error("a step was done after the end")
			}
			switch key {
			case "error":
				return errors.New("late")
			case "panic":
				panic(http.ErrAbortHandler)
			case "long":
				time.Sleep(route.Lease + route.Lease/2)
				if r.Context().Err() != nil {
					b.Error(context.Cause(r.Context()))
				}
			}
			_, err := w.Write([]byte("asked"))
			return err
		})
		try.Post(b, url, "answer", `{}`).Check(b, 200, "asked", false)
		try.Post(b, url, "error", `{}`).CheckProblem(b, 500, "internal")
		try.Post(b, url, "long", `{}`).Check(b, 200, "asked", false)
		try.Broken(b, url, "panic", `{}`)
		for _, key := range []string{"answer", "error", "long", "panic"} {
			b.checkUnknown(key, "no answer in 30 s", "ch_1")
			try.Post(b, url, key, `{}`).CheckProblem(b, 409, "unknown")
		}
		if runs.Load() != 4 || b.effects() != "" {
			b.Error(runs.Load(), b.effects())
		}
	})
}

// Who declares the outcome of a claim that is lost is told so.
func TestUnknownOfALostClaim(t *testing.T) {
	withEach(t, func(b *bench) {
		route := b.route()
		route.Scope = b.Name()
		url := b.serve(b.leased(route), func(w http.ResponseWriter, r *http.Request) error {
			try.Exec(b, b.pool, "SELECT idem_resolve('k', 'fail', scope => $1, principal => $1)", b.Name())
			if err := b.unknown(r.Context(), nil, ""); !errors.Is(err, idempotency.ErrLeaseLost) {
				b.Error(err)
			}
			return nil
		})
		try.Post(b, url, "k", `{}`).CheckProblem(b, 409, "in-progress")
		try.Post(b, url, "k", `{}`).CheckProblem(b, 500, "failed")
	})
}

// The database is away while the handler declares the outcome: it is stored when the handler has
// returned, and not its answer.
func TestUnknownIsStoredInTheEnd(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	var returned atomic.Bool
	store := pgxidem.New(&faulty{Pool: b.pool, query: func(sql string) error {
		if strings.Contains(sql, "idem_unknown") && !returned.Load() {
			return errCut
		}
		return nil
	}})
	route := b.route()
	route.Scope = b.Name()
	url := b.serve(store.Leased(route), func(w http.ResponseWriter, r *http.Request) error {
		if pgxidem.ClaimOf(r.Context()).Unknown(r.Context(), errors.New("no answer"), "") == nil {
			t.Error("it was stored")
		}
		returned.Store(true)
		return nil
	})
	try.Post(b, url, "k", `{}`).Check(b, 200, "", false)
	b.checkUnknown("k", "no answer", "")
	try.Post(b, url, "k", `{}`).CheckProblem(b, 409, "unknown")
}

// The same without HTTP.
func TestUncertainFunctions(t *testing.T) {
	b := &bench{T: t, pool: try.Pool(t)}
	b.uncertain()
	store := pgxidem.New(b.pool)
	call := func(failure error) error {
		request := idempotency.Request{Key: "k", Scope: b.Name(), Principal: b.Name()}
		_, err := idempotency.Leased(t.Context(), store, request,
			func(context.Context, *pgxidem.Claim) (int, error) { return 0, failure })
		return err
	}
	broken := errors.New("broken")
	if err := call(idempotency.NothingHappened(broken)); !errors.Is(err, broken) {
		t.Error(err)
	}
	b.due()
	if err := call(broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	var refusal *idempotency.Refusal
	if err := call(nil); !errors.As(err, &refusal) || refusal.Outcome != "unknown" || refusal.RetryAfter <= 0 {
		t.Error(err)
	}
}
