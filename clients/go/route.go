package idempotency

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// What to do with a request that has no key.
type MissingKey int

const (
	// Refuse answers 400.
	Refuse MissingKey = iota
	// Pass runs the handler unprotected.
	Pass
	// Generate runs it under a new key, which the answer names.
	Generate
	// Derive takes a digest of method, target and canonical body for the key, so that identical
	// requests take effect once within Route.Window.
	Derive
)

// An Event is what hooks get.
type Event struct {
	Scope, Key string
	Attempt    int
	// Outcome is one of idem_begin, or the reason of a refusal ("missing_key", "unavailable", ...).
	Outcome string
}

// A Hook is called with the context of the request. A panic of it is logged and changes nothing.
type Hook func(context.Context, Event)

// A Route says how requests are protected. Principal is required.
type Route struct {
	// Principal says on whose behalf a request comes, from its authentication: "" is answered 401,
	// before anything of the body is read.
	Principal func(*http.Request) string
	// Scope names the operation: by default method and pattern of the route, "POST /payments/{id}".
	Scope string
	// ScopeOf says it of a request, for routers that don't set Request.Pattern.
	ScopeOf func(*http.Request) string
	// Methods that are protected, by default POST and PATCH. Others pass.
	Methods []string

	MissingKey MissingKey
	// Window is how long a derived key counts: by default a day.
	Window time.Duration
	// Exclude names fields of the JSON body that may differ between two sendings.
	Exclude []string
	// Fingerprint gives bytes to compare instead of method, target and body.
	Fingerprint func(*http.Request) []byte
	// TTL is how long an answer is replayed: by default as the policy says.
	TTL time.Duration
	// Lease is how long a leased claim may be silent: by default 30 s.
	Lease time.Duration
	// Wait is how long a repeat waits for a running execution: by default not at all.
	Wait time.Duration
	// Keep says which answers are stored and replayed: by default all but 408, 425, 429 and 5xx.
	Keep func(status int) bool
	// Statuses by outcome, where they differ from idem_http_status; "unavailable" is 503.
	Statuses map[string]int
	// KeyHeader and ReplayHeader are Idempotency-Key and Idempotent-Replayed by default.
	KeyHeader, ReplayHeader string
	// EchoKey puts the key's header on every answer.
	EchoKey bool
	// MaxRequestBytes and MaxAnswerBytes are 1 MiB by default.
	MaxRequestBytes, MaxAnswerBytes int64
	// OmitLargeAnswers stores the status alone of what is larger, instead of failing.
	OmitLargeAnswers bool
	// Attempts is how often a handler is run when its transaction fails to serialize, deadlocks or
	// loses its connection: by default 5.
	Attempts int
	// UnprotectedWithoutDatabase runs handlers while the database is away, without a transaction. It
	// gives up the promise.
	UnprotectedWithoutDatabase bool

	OnExecute, OnReplay, OnRefusal, OnLeaseLost Hook
	// Logger gets errors of the database and of handlers: by default slog.Default().
	Logger *slog.Logger
}

// DefaultKeep is Route.Keep where that is not set.
func DefaultKeep(status int) bool {
	return status < 500 && !notKept[status]
}

// withDefaults panics where a route can't work, so that a program finds out when it starts.
func (route Route) withDefaults() *Route {
	if route.Principal == nil {
		panic("idempotency: a Route needs a Principal")
	}
	if route.Methods == nil {
		route.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if route.Keep == nil {
		route.Keep = DefaultKeep
	}
	if route.Logger == nil {
		route.Logger = slog.Default()
	}
	orDefault(&route.Window, defaultWindowMs*time.Millisecond)
	orDefault(&route.Lease, defaultLeaseMs*time.Millisecond)
	orDefault(&route.KeyHeader, "Idempotency-Key")
	orDefault(&route.ReplayHeader, "Idempotent-Replayed")
	orDefault(&route.MaxRequestBytes, defaultMaxRequestBytes)
	orDefault(&route.MaxAnswerBytes, defaultMaxAnswerBytes)
	orDefault(&route.Attempts, defaultAttempts)
	return &route
}

func orDefault[T comparable](option *T, value T) {
	var unset T
	if *option == unset {
		*option = value
	}
}

func (route *Route) call(ctx context.Context, hook Hook, event Event) {
	if hook == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			route.Logger.ErrorContext(ctx, "idempotency: a hook panicked", "panic", p)
		}
	}()
	hook(ctx, event)
}

// scope is the route as the router knows it; a path that no pattern has matched stands for itself.
func (route *Route) scope(r *http.Request) string {
	if route.Scope != "" {
		return route.Scope
	}
	if route.ScopeOf != nil {
		return route.ScopeOf(r)
	}
	pattern := r.Pattern
	if pattern == "" {
		pattern = r.URL.EscapedPath()
	}
	if strings.Contains(pattern, " ") { // with its method
		return pattern
	}
	return r.Method + " " + pattern
}
