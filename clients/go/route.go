package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
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

// A Verdict says what becomes of an answer that a handler has given.
type Verdict int

const (
	// ByStatus leaves it to Route.Keep.
	ByStatus Verdict = iota
	// Keep stores the answer.
	Keep
	// Free does not, and nothing has happened: a transaction is rolled back, and a leased claim may be
	// tried again whatever the policy of its scope says.
	Free
	// Unknown commits, and the outcome of the request is not known: repeats are answered so until an
	// operator decides.
	Unknown
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
	// Verdict decides on an answer before Keep does.
	Verdict func(*Answer) Verdict
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
	// HandlerTimeout is how long a handler may run: by default a minute, and ten minutes on a leased
	// route. Then its context ends with the cause ErrHandlerTimeout, its transaction is rolled back and
	// its connection given up, or its claim fails.
	HandlerTimeout time.Duration
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
func (route Route) withDefaults(handlerTimeout time.Duration) *Route {
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
	orDefault(&route.HandlerTimeout, handlerTimeout)
	if err := route.validate(); err != nil {
		panic(err)
	}
	return &route
}

// verdictOn an answer. ByStatus then means that its status is one that is not kept.
func (route *Route) verdictOn(a *Answer) Verdict {
	if route.Verdict != nil {
		if v := route.Verdict(a); v != ByStatus {
			return v
		}
	}
	if route.Keep(a.Status) {
		return Keep
	}
	return ByStatus
}

// validate finds options that can't be meant.
func (route *Route) validate() error {
	for name, span := range map[string]time.Duration{"Window": route.Window, "TTL": route.TTL, "Lease": route.Lease,
		"Wait": route.Wait, "HandlerTimeout": route.HandlerTimeout} {
		if span < 0 {
			return fmt.Errorf("idempotency: Route.%s is negative: %v", name, span)
		}
	}
	for name, number := range map[string]int64{"MaxRequestBytes": route.MaxRequestBytes,
		"MaxAnswerBytes": route.MaxAnswerBytes, "Attempts": int64(route.Attempts)} {
		if number < 0 {
			return fmt.Errorf("idempotency: Route.%s is negative: %d", name, number)
		}
	}
	for word, status := range route.Statuses {
		if _, known := problems[word]; !known {
			return fmt.Errorf("idempotency: Route.Statuses names no outcome: %q", word)
		}
		if status < 400 || status > 599 {
			return fmt.Errorf("idempotency: Route.Statuses has no status of an error for %s: %d", word, status)
		}
	}
	switch {
	case route.MissingKey < Refuse || route.MissingKey > Derive:
		return fmt.Errorf("idempotency: Route.MissingKey is none of Refuse, Pass, Generate, Derive: %d", route.MissingKey)
	case route.Scope != "" && route.ScopeOf != nil:
		return errors.New("idempotency: a Route has Scope or ScopeOf, not both")
	case !all(route.KeyHeader, isToken) || !all(route.ReplayHeader, isToken):
		return fmt.Errorf("idempotency: a header's name is none: %q, %q", route.KeyHeader, route.ReplayHeader)
	case len(route.Methods) == 0 || slices.ContainsFunc(route.Methods, isNoMethod):
		return fmt.Errorf("idempotency: Route.Methods are none: %q", route.Methods)
	case slices.Contains(route.Exclude, ""):
		return errors.New("idempotency: Route.Exclude has an empty entry")
	}
	return nil
}

// isNoMethod, since the methods of HTTP are in upper case, and others never match.
func isNoMethod(name string) bool {
	return name == "" || !all(name, isToken) || name != strings.ToUpper(name)
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
