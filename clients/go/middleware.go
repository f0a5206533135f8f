package idempotency

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"time"

	"postgres.example/idempotency/internal/linger"
)

// Transactional protects a route whose work is SQL. Its handler finds the transaction of the claim in
// the request's context, by Tx of the driver's package; what it does there commits with the answer.
func (s *Store[Tx]) Transactional(route Route) func(http.Handler) http.Handler {
	return s.middleware(route.withDefaults(time.Minute), (*exchange[Tx]).runTransactional)
}

// Leased protects a route that calls others. Its handler finds the claim in the request's context, by
// ClaimOf of the driver's package; the context ends when the lease is lost.
func (s *Store[Tx]) Leased(route Route) func(http.Handler) http.Handler {
	return s.middleware(route.withDefaults(10*time.Minute), (*exchange[Tx]).runLeased)
}

func (s *Store[Tx]) middleware(route *Route, run func(*exchange[Tx]) (verdict, error)) func(http.Handler) http.Handler {
	if s.DatabaseTimeout <= 0 {
		panic("idempotency: DatabaseTimeout of the store is not positive")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !slices.Contains(route.Methods, r.Method) {
				next.ServeHTTP(w, r)
				return
			}
			q := &claimRequest{scope: route.scope(r), ttl: route.TTL, lease: route.Lease, wait: route.Wait}
			e := &exchange[Tx]{store: s, route: route, w: w, r: r, next: next, q: q, showKey: route.EchoKey}
			e.serve(run)
		})
	}
}

// An exchange is a request and its answer.
type exchange[Tx any] struct {
	store *Store[Tx]
	route *Route
	w     http.ResponseWriter
	r     *http.Request
	next  http.Handler

	q       *claimRequest
	body    []byte
	showKey bool
	told    bool          // OnExecute was called
	late    chan struct{} // the handler goes on after its deadline, until this is closed
}

func (e *exchange[Tx]) serve(run func(*exchange[Tx]) (verdict, error)) {
	// Who asks, before anything of the body is read.
	if e.q.principal = e.route.Principal(e.r); e.q.principal == "" {
		e.refuseUnread(problemPrincipal)
		return
	}
	if word := e.readKey(); word != "" {
		e.refuseUnread(word)
		return
	}
	body, problem := readBody(e.w, e.r, e.route.MaxRequestBytes)
	if problem != "" {
		e.refuseUnread(problem)
		return
	}
	e.body, e.q.identity = body, e.route.identify(e.r, body)
	if e.q.key == "" {
		e.withoutKey()
	}
	v, err := run(e)
	defer v.answer.close()
	e.conclude(v, err)
	if e.late != nil && linger.Wanted(e.r.Context()) {
		_ = http.NewResponseController(e.w).Flush()
		<-e.late
	}
}

// readKey takes the field as it was sent; net/http undoes nothing in it. It answers with the word of
// a refusal, or "".
func (e *exchange[Tx]) readKey() (word string) {
	fields := e.r.Header.Values(e.route.KeyHeader)
	if len(fields) == 0 {
		if e.route.MissingKey == Refuse {
			return outcomeMissingKey
		}
		return ""
	}
	key, ok := ParseKey(fields[0])
	if !ok || len(fields) > 1 {
		return outcomeBadKey
	}
	e.q.key = key
	return ""
}

func (e *exchange[Tx]) withoutKey() {
	switch e.route.MissingKey {
	case Generate:
		e.q.key, e.showKey = NewKey(), true
	case Derive:
		e.q.derive, e.q.ttl, e.showKey = e.route.Window, e.route.Window, true
	default:
		e.q.unprotected = true
	}
}

func (e *exchange[Tx]) runTransactional() (verdict, error) {
	return e.store.runTransactional(e.r.Context(), e.q, e.route.Attempts,
		func(ctx context.Context, tx Tx, c *claimed) (*Answer, Verdict, error) {
			return e.handle(ctx, c, &current[Tx]{info: infoOf(e.q, c), tx: tx})
		})
}

func (e *exchange[Tx]) runLeased() (verdict, error) {
	onLost := func(c *claimed) { e.tell(e.route.OnLeaseLost, "lost", c) }
	return e.store.runLeased(e.r.Context(), e.q, e.route.Attempts, onLost,
		func(ctx context.Context, claim *Claim[Tx]) (*Answer, Verdict, error) {
			return e.handle(ctx, &claimed{attempt: claim.Attempt}, &current[Tx]{info: claim.Info, claim: claim})
		})
}

// handle runs the handler once, and no longer than until its deadline.
func (e *exchange[Tx]) handle(ctx context.Context, c *claimed, current *current[Tx]) (*Answer, Verdict, error) {
	if !e.told {
		e.told = true
		e.tell(e.route.OnExecute, outcomeExecute, c)
	}
	failed := new(failure)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inner := context.WithValue(withCurrent(ctx, current), failureKey{}, failed)
	written := newRecorder(e.w.Header(), e.route.MaxAnswerBytes, e.route.OmitLargeAnswers)
	r := withBody(e.r.WithContext(inner), e.body)
	work := func() {
		defer func() {
			if r.MultipartForm != nil {
				_ = r.MultipartForm.RemoveAll()
			}
		}()
		e.next.ServeHTTP(written, r)
	}
	if err := e.run(work, cancel, e.lossOf(current), written); err != nil {
		return nil, ByStatus, err
	}
	wrote := written.freeze()
	if written.tooLarge && !e.route.OmitLargeAnswers {
		return nil, ByStatus, ErrAnswerTooLarge
	}
	err := failed.get()
	if cause := context.Cause(ctx); err != nil && (cause == ErrHandlerTimeout || errors.As(cause, new(databaseError))) {
		return nil, ByStatus, cause // and not that the context has ended
	}
	if err != nil && !wrote {
		return nil, ByStatus, err
	}
	answer := written.finish()
	return answer, e.route.verdictOn(answer), err
}

// lossOf gives what tells of the connection of a transaction that it is lost, where the driver's
// package can. Its error has the SQLSTATE that the server has left, if any.
func (e *exchange[Tx]) lossOf(current *current[Tx]) func() error {
	watcher, can := e.store.db.(interface{ Loss(Tx) error })
	if !can || current.claim != nil || e.q.unprotected && any(current.tx) == nil {
		return nil
	}
	return func() error { return watcher.Loss(current.tx) }
}

// run is over when the work has returned. At its deadline, or when its connection is lost, its context
// ends. It may go on a little longer; then it is abandoned.
//
// The work is in a goroutine of its own, as http.TimeoutHandler has it; its panic goes on in ours, and
// so does its runtime.Goexit.
func (e *exchange[Tx]) run(work func(), cancel context.CancelCauseFunc, loss func() error, written *recorder) error {
	type end struct {
		returned bool
		panicked any
	}
	ended, gone := make(chan end, 1), make(chan struct{})
	go func() {
		defer close(gone)
		var is end
		defer func() {
			if !is.returned {
				is.panicked = recover()
			}
			ended <- is
		}()
		work()
		is.returned = true
	}()
	deadline := time.NewTimer(e.route.HandlerTimeout)
	defer deadline.Stop()
	look := time.NewTicker(lookAtConnections)
	defer look.Stop()
	var cause error
	for {
		select {
		case is := <-ended:
			if is.returned {
				return nil
			}
			written.discard()
			if is.panicked != nil {
				panic(is.panicked)
			}
			runtime.Goexit()
		case <-look.C:
			if cause != nil || loss == nil {
				continue
			}
			if err := loss(); err != nil {
				cause = databaseError{err}
				cancel(cause)
				deadline.Reset(grace(e.route.HandlerTimeout))
			}
		case <-deadline.C:
			if cause == nil {
				cause = ErrHandlerTimeout
				cancel(cause)
				deadline.Reset(grace(e.route.HandlerTimeout))
				continue
			}
			written.discard()
			e.late = gone
			if linger.Wanted(e.r.Context()) && cause != ErrHandlerTimeout {
				cause = errors.Join(ErrHandlerTimeout, cause) // two runs at once would have one context
			}
			return abandoned{cause}
		}
	}
}

const lookAtConnections = 250 * time.Millisecond

// grace is for handlers that end with their context.
func grace(timeout time.Duration) time.Duration { return min(timeout/10, time.Second) }

// conclude answers the client.
func (e *exchange[Tx]) conclude(v verdict, err error) {
	switch {
	case v.lost: // the new holder will answer
		e.answerProblem(outcomeInProgress, nil)
	case err != nil:
		e.answerError(v, err)
	case v.claim.outcome == outcomeExecute:
		e.answer(v.answer, false)
	case v.claim.outcome == outcomeReplay:
		e.replay(v.claim)
	default:
		c := v.claim
		e.tell(e.route.OnRefusal, c.outcome, c)
		e.answerProblem(c.outcome, c.retryAfter)
	}
}

func (e *exchange[Tx]) replay(c *claimed) {
	e.tell(e.route.OnReplay, outcomeReplay, c)
	stored, err := storedAnswer(c)
	if err != nil {
		e.log(err)
	}
	if stored == nil {
		stored = e.route.problemAnswerOf(outcomeFailed, e.store.documentOf(e.r.Context(), outcomeFailed), nil)
	}
	e.answer(stored, true)
}

// answerError is for what no outcome describes.
func (e *exchange[Tx]) answerError(v verdict, err error) {
	problem := problemInternal
	var ours databaseError
	handlers := v.answer != nil && v.answer.Status >= 400 && !errors.As(err, &ours) && !isRetryable(err)
	switch {
	case handlers:
		e.log(err)
		e.answer(v.answer, false)
		return
	case v.claim == nil && e.q.identity.json != nil && stateIn(err, "22P02", "22021"):
		e.refuse(problemJSON, nil)
		return
	case v.claim == nil && stateIn(err, "54000", "54001"):
		e.refuse(problemTooLarge, nil)
		return
	case errors.Is(err, ErrHandlerTimeout):
		problem = problemLate
	case isUnavailable(err):
		if e.route.UnprotectedWithoutDatabase && !v.ran {
			e.log(err)
			e.runUnprotected()
			return
		}
		problem = problemUnavailable
	case stateIn(err, "54000") || err == ErrAnswerTooLarge:
		problem = problemAnswer
	}
	e.log(err)
	if problem == problemUnavailable {
		soon := 1.0
		e.refuse(problem, &soon)
		return
	}
	e.answerProblem(problem, nil)
}

// runUnprotected gives the handler no transaction, for there is none, and a claim without a record.
func (e *exchange[Tx]) runUnprotected() {
	e.q.unprotected = true
	heart := e.store.startHeartbeat(e.r.Context(), e.q, 0, time.Now(), func() {})
	defer heart.end()
	claim := newClaim(e.store, e.q, new(claimed), heart)
	answer, _, err := e.handle(heart.ctx, new(claimed), &current[Tx]{info: claim.Info, claim: claim})
	defer answer.close()
	if err != nil && (answer == nil || answer.Status < 400) {
		e.log(err)
		e.answerProblem(problemInternal, nil)
		return
	}
	e.answer(answer, false)
}

// refuse tells the hook, too.
func (e *exchange[Tx]) refuse(word string, retryAfter *float64) {
	e.tell(e.route.OnRefusal, word, new(claimed))
	e.answerProblem(word, retryAfter)
}

func (e *exchange[Tx]) refuseUnread(word string) {
	e.closeUnread()
	e.refuse(word, nil)
}

// closeUnread ends the connection after an answer to a body that was not read: net/http would
// otherwise wait for the rest of it before it sends anything.
func (e *exchange[Tx]) closeUnread() {
	if e.r.ProtoMajor == 1 && e.r.ContentLength != 0 {
		e.w.Header().Set("Connection", "close")
	}
}

func (e *exchange[Tx]) answerProblem(word string, retryAfter *float64) {
	e.answer(e.route.problemAnswerOf(word, e.store.documentOf(e.r.Context(), word), retryAfter), false)
}

func (e *exchange[Tx]) answer(a *Answer, replayed bool) {
	fields := http.Header{}
	if e.showKey && e.q.key != "" {
		fields.Set(e.route.KeyHeader, FormatKey(e.q.key))
	}
	if replayed {
		fields.Set(e.route.ReplayHeader, "true")
	}
	a.send(e.w, fields)
}

// tell calls a hook, which may outlive the client.
func (e *exchange[Tx]) tell(hook Hook, outcome string, c *claimed) {
	e.route.call(context.WithoutCancel(e.r.Context()), hook, Event{e.q.scope, e.q.key, c.attempt, outcome})
}

// The key is not logged: it may be a secret.
func (e *exchange[Tx]) log(err error) {
	e.route.Logger.ErrorContext(e.r.Context(), "idempotency: "+err.Error(), "scope", e.q.scope)
}
