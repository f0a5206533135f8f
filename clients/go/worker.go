package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Worker works off what no client sends again: webhooks, jobs, abandoned work. It claims records that
// are due, runs the Handler for each, and ends its claim. Store, Scope and Handler are required. A
// Worker runs once; its fields are not changed afterwards.
type Worker[Tx any] struct {
	Store *Store[Tx]
	// Scope is one, or the beginning of several and "*".
	Scope string
	// Handler does the work. An error means that it is to be done again, when the policy of the scope
	// says, and so does an answer that DefaultKeep rejects. Any other answer is stored, and nil completes
	// the record without one. An answer that it raises, by a *StatusError, is stored without the work.
	//
	// Its context ends with the cause ErrLeaseLost when the claim is lost, and at Abort.
	Handler func(context.Context, *Work[Tx]) (*Answer, error)
	// Leased work has Work.Claim, and no transaction.
	Leased bool
	// Size is how many claims are in work at the same time: by default 1.
	Size int
	// Lease is how long a claim may be silent: by default 30 s. Heartbeats prolong it.
	Lease time.Duration
	// Poll is the pause when nothing is due: by default a second.
	Poll time.Duration
	// HandlerTimeout is how long a handler may run: by default ten minutes. Then its context ends with the
	// cause ErrHandlerTimeout, and it has failed, whatever it returns.
	HandlerTimeout time.Duration
	// Channel is listened to: a notification ends the pause.
	Channel string
	// Logger gets errors of the database and of the handler: by default slog.Default().
	Logger *slog.Logger

	once               sync.Once
	stopping, aborting context.Context
	stop, abort        context.CancelFunc
	wake               chan struct{}
	notified           atomic.Bool // since the last claim, or it was filled
	running            atomic.Int64
	handlers           sync.WaitGroup
	next               time.Time // to claim
	failures           int       // of claims, one after the other
	hasClaimed         bool
}

// Work is a record that was due, and its claim.
type Work[Tx any] struct {
	Info
	// Token of each claim of a key is larger than those before.
	Token int64
	// Tx is the transaction that commits with the end of the claim. Leased work has none.
	Tx Tx
	// Claim is that of leased work, for Step, StepTx and Unknown.
	Claim *Claim[Tx]
	// Operation, Method and Path are "" where they are not known.
	Operation, Method, Path string
	// Request is nil unless the policy of the scope has store_request.
	Request json.RawMessage
	// RecoveryPoint and State are of the last checkpoint.
	RecoveryPoint string
	State         json.RawMessage
	// Error is why the attempt before failed.
	Error string
}

const longestPause = 30 * time.Second

// Run works until ctx ends or Stop is called, and the running handlers have returned. The database may
// be away in between. If the server refuses the first claim, by a missing right, say, that is its error.
func (w *Worker[Tx]) Run(ctx context.Context) error {
	w.prepare()
	if err := w.validate(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, w.Stop)()
	var listening sync.WaitGroup
	if w.Channel != "" {
		listening.Add(1)
		go func() {
			defer listening.Done()
			w.listen(w.Store.db.(Listener))
		}()
	}
	var err error
	for err == nil && w.turn() {
		err = w.claim()
	}
	w.stop()
	w.handlers.Wait()
	listening.Wait()
	return err
}

// Stop ends Run when the running handlers have returned. Nothing more is claimed.
func (w *Worker[Tx]) Stop() {
	w.prepare()
	w.stop()
}

// Abort is Stop, and ends the contexts of the running handlers.
func (w *Worker[Tx]) Abort() {
	w.Stop()
	w.abort()
}

func (w *Worker[Tx]) prepare() {
	w.once.Do(func() {
		w.stopping, w.stop = context.WithCancel(context.Background())
		w.aborting, w.abort = context.WithCancel(context.Background())
		w.wake = make(chan struct{}, 1)
		orDefault(&w.Size, 1)
		orDefault(&w.Lease, defaultLeaseMs*time.Millisecond)
		orDefault(&w.Poll, time.Second)
		orDefault(&w.HandlerTimeout, defaultLeasedHandlerTimeoutMs*time.Millisecond)
		if w.Logger == nil {
			w.Logger = slog.Default()
		}
	})
}

func (w *Worker[Tx]) validate() error {
	switch {
	case w.Store == nil || w.Scope == "" || w.Handler == nil:
		return errors.New("idempotency: a Worker needs Store, Scope and Handler")
	case w.Size < 1 || w.Size > 1000:
		return fmt.Errorf("idempotency: Worker.Size is not from 1 to 1000: %d", w.Size)
	case w.Lease < 0 || w.Poll < 0 || w.HandlerTimeout < 0:
		return fmt.Errorf("idempotency: Worker.Lease, Poll or HandlerTimeout is negative: %v, %v, %v", w.Lease, w.Poll, w.HandlerTimeout)
	}
	if _, can := w.Store.db.(Listener); w.Channel != "" && !can {
		return errors.New("idempotency: Worker.Channel needs a Store that can listen: one of pgxidem")
	}
	return nil
}

// turn waits until there is a free slot and a reason to claim. It answers false when the worker stops.
func (w *Worker[Tx]) turn() bool {
	for w.stopping.Err() == nil {
		full := w.running.Load() >= int64(w.Size)
		wait := time.Until(w.next)
		if w.notified.Load() && w.failures == 0 {
			wait = 0
		}
		if !full && wait <= 0 {
			return true
		}
		if full {
			wait = time.Hour // a handler that returns ends it
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.stopping.Done():
		}
		timer.Stop()
	}
	return false
}

func (w *Worker[Tx]) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}

// claim as many as there are free slots. A failure is not repeated at once, for it may have claimed some.
func (w *Worker[Tx]) claim() error {
	free := w.Size - int(w.running.Load())
	sent := time.Now()
	w.notified.Store(false) // a notification during the call counts
	list, err := w.Store.dueAlone(context.Background(), w.Scope, free, w.Lease)
	if err != nil {
		if !w.hasClaimed && isMistake(err) {
			return err
		}
		w.Logger.Error("idempotency: "+err.Error(), "scope", w.Scope)
		w.next = time.Now().Add(w.backoff(w.failures))
		w.failures++
		return nil
	}
	w.hasClaimed, w.failures = true, 0
	if len(list) == free {
		w.notified.Store(true)
	}
	w.next = time.Now().Add(w.Poll/2 + rand.N(w.Poll))
	for _, d := range list {
		w.running.Add(1)
		w.handlers.Add(1)
		go func() {
			defer w.handlers.Done()
			defer w.wakeUp()
			defer w.running.Add(-1)
			w.handle(d, sent)
		}()
	}
	return nil
}

// handle does the work of one record.
func (w *Worker[Tx]) handle(d *due, sent time.Time) {
	q := &claimRequest{key: d.key, scope: d.scope, principal: d.principal, lease: w.Lease}
	work := &Work[Tx]{Info: infoOf(q, &d.claimed), Token: d.token, Operation: d.operation, Method: d.method, Path: d.path,
		Request: d.request, RecoveryPoint: d.recoveryPoint, State: d.state, Error: d.failure}
	run := func(ctx context.Context, tx Tx, claim *Claim[Tx]) (*Answer, Verdict, error) {
		work.Tx, work.Claim = tx, claim
		return w.run(withCurrent(ctx, &current[Tx]{info: work.Info, tx: tx, claim: claim}), work)
	}
	var v verdict
	var err error
	if w.Leased {
		v, err = w.Store.settle(context.Background(), q, &d.claimed, sent, defaultAttempts, func(*claimed) {},
			func(ctx context.Context, claim *Claim[Tx]) (*Answer, Verdict, error) {
				var none Tx
				return run(ctx, none, claim)
			})
	} else {
		v, err = w.Store.settleWithin(q, &d.claimed, sent, func(ctx context.Context, tx Tx) (*Answer, Verdict, error) {
			return run(ctx, tx, nil)
		})
	}
	if v.lost {
		err = ErrLeaseLost
	}
	if err != nil {
		w.Logger.Error("idempotency: "+err.Error(), "scope", d.scope, "attempt", d.attempt)
	}
}

// run the handler. A panic is an error, for no one else would see it.
func (w *Worker[Tx]) run(ctx context.Context, work *Work[Tx]) (answer *Answer, verdict Verdict, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.HandlerTimeout, ErrHandlerTimeout)
	defer cancel()
	defer context.AfterFunc(w.aborting, cancel)()
	defer func() {
		if p := recover(); p != nil {
			w.Logger.Error("idempotency: a handler panicked", "panic", p, "stack", string(debug.Stack()))
			answer, err = nil, fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	answer, err = w.Handler(ctx, work)
	if context.Cause(ctx) == ErrHandlerTimeout {
		return nil, 0, errors.Join(ErrHandlerTimeout, err)
	}
	var raised *StatusError
	if answer == nil && errors.As(err, &raised) {
		header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		answer = &Answer{Status: raised.Status, Header: header, Body: []byte(raised.Message)}
	} else if answer == nil && err == nil {
		answer = new(Answer)
	}
	if answer != nil && DefaultKeep(answer.Status) {
		verdict = Keep
	}
	return answer, verdict, err
}

// settleWithin does work in a transaction that ends the claim, so that both commit or neither does.
func (s *Store[Tx]) settleWithin(q *claimRequest, c *claimed, sent time.Time,
	work func(context.Context, Tx) (*Answer, Verdict, error)) (v verdict, err error) {
	v.claim = c
	held := context.Background()
	heart := s.startHeartbeat(held, q, c.token, sent, func() {})
	defer heart.end()
	claim := newClaim(s, q, c, heart)
	var failure error // of the work
	var verdict Verdict
	for attempt := 1; ; attempt++ {
		v.answer, verdict, failure = nil, 0, nil // not those of the run before
		err = s.inTransaction(heart.ctx, 0, nil, func(ctx context.Context, tx Tx, clock *clock) (end, *Statement, error) {
			clock.stop()
			v.answer, verdict, failure = work(ctx, tx)
			heart.stopBeating()
			clock.start()
			if failure != nil || verdict != Keep || heart.isLost() {
				return rollBack, nil, failure
			}
			return commit, s.complete(q, v.answer, c.token), nil
		})
		heart.stopBeating()
		if !isConflict(err) || attempt == defaultAttempts || !pause(heart.ctx, attempt) {
			break
		}
		heart.startBeating(0)
	}
	if failure == nil {
		err = claim.told(err)
	}
	switch {
	case heart.isLost():
	case isRaised(v.answer, verdict, failure):
		err = s.completeLeased(heart, q, c.token, v.answer)
	case err != nil:
		claim.fail(held, defaultAttempts, err.Error(), false)
	case verdict != Keep:
		claim.fail(held, defaultAttempts, fmt.Sprint("status ", v.answer.Status), false)
	}
	v.lost = heart.isLost()
	return v, err
}

// listen until the worker stops. While that does not succeed, it polls.
func (w *Worker[Tx]) listen(database Listener) {
	for failures := 0; w.stopping.Err() == nil; failures++ {
		err := database.Listen(w.stopping, w.Channel, func() {
			failures = -1
			w.notified.Store(true)
			w.wakeUp()
		})
		if w.stopping.Err() != nil {
			return
		}
		w.Logger.Error("idempotency: "+fmt.Sprint(err), "channel", w.Channel)
		select {
		case <-time.After(w.backoff(max(failures, 0))):
		case <-w.stopping.Done():
		}
	}
}

// backoff doubles from Poll.
func (w *Worker[Tx]) backoff(failures int) time.Duration {
	longest := min(w.Poll<<min(failures, 20), max(w.Poll, longestPause))
	return longest/2 + rand.N(longest/2+1)
}

// isMistake: no claim of this worker can succeed, for a right, a function, the database or a value is
// wrong.
func isMistake(err error) bool {
	state := sqlState(err)
	return len(state) == 5 && slices.Contains([]string{"0A", "22", "28", "3D", "3F", "42"}, state[:2])
}
