package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"sync"
)

// Info says which request is being executed.
type Info struct {
	Key, Scope, Principal string
	// Attempt is 1 for the first.
	Attempt int
}

// Derived gives a key for a request to another service, a function of this one and of a name: after a
// crash the same call is made with the same key.
func (i Info) Derived(name string) string {
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`)
	parts := []string{escape.Replace(i.Scope), escape.Replace(i.Principal), escape.Replace(i.Key), escape.Replace(name)}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	return hex.EncodeToString(sum[:])
}

// A Claim is a leased one, held while its handler runs. What the handler returns ends it, or Unknown.
type Claim[Tx any] struct {
	Info
	// RecoveryPoint is the last step that an attempt before has done, and State what it left.
	RecoveryPoint string
	State         json.RawMessage

	store *Store[Tx]
	q     *claimRequest
	token int64
	heart *heartbeat
	// Held while a step is noted: a note is of all steps, so that of one must not pass over another's.
	noting sync.Mutex
	mu     sync.Mutex
	steps  map[string]json.RawMessage // the results of those that are done
	end    *unknown                   // what Unknown was told
}

// unknown is an outcome that is not known.
type unknown struct {
	reason, reference string
	stored            bool
}

func newClaim[Tx any](s *Store[Tx], q *claimRequest, c *claimed, heart *heartbeat) *Claim[Tx] {
	claim := &Claim[Tx]{Info: infoOf(q, c), RecoveryPoint: c.recoveryPoint, State: c.state,
		store: s, q: q, token: c.token, heart: heart}
	if json.Unmarshal(c.state, &claim.steps) != nil || claim.steps == nil {
		claim.steps = map[string]json.RawMessage{}
	}
	if _, known := claim.steps[c.recoveryPoint]; c.recoveryPoint != "" && !known {
		claim.steps[c.recoveryPoint] = nil
	}
	return claim
}

func infoOf(q *claimRequest, c *claimed) Info {
	return Info{Key: q.key, Scope: q.scope, Principal: q.principal, Attempt: max(c.attempt, 1)}
}

// Step does a part of leased work and notes that it is done, with its result, which has to fit into
// JSON. An attempt after a crash does not do it again, but gets the result. A crash between the work
// and the note repeats the work: what is called outside has to know a repetition, by Info.Derived.
func Step[T, Tx any](ctx context.Context, claim *Claim[Tx], name string,
	work func(context.Context) (T, error)) (result T, err error) {
	if done, err := claim.done(name, &result); done || err != nil {
		return result, err
	}
	if result, err = work(ctx); err != nil {
		return result, err
	}
	claim.noting.Lock()
	defer claim.noting.Unlock()
	state, err := claim.with(name, result)
	if err != nil {
		return result, err
	}
	note := claim.store.checkpoint(claim.q, claim.token, name, state)
	if note != nil {
		err = again(ctx, defaultAttempts, func() error { return note.Scan(claim.store.alone(ctx, note.SQL, note.Args)) })
	}
	return result, claim.noted(err, state)
}

// StepTx is a Step whose work is SQL: effect and note commit together, so that it is done once. After
// a conflict or the loss of its connection it is repeated, but not after a COMMIT whose answer is lost:
// that is an error, and the next attempt sees whether it was done.
func StepTx[T, Tx any](ctx context.Context, claim *Claim[Tx], name string,
	work func(context.Context, Tx) (T, error)) (result T, err error) {
	if done, err := claim.done(name, &result); done || err != nil {
		return result, err
	}
	noting := false
	release := func() {
		if noting {
			noting = false
			claim.noting.Unlock()
		}
	}
	defer release()
	var state []byte
	for attempt := 1; ; attempt++ {
		err = claim.store.inTransaction(ctx, 0, nil, func(ctx context.Context, tx Tx, clock *clock) (end, *Statement, error) {
			clock.stop()
			result, err = work(ctx, tx)
			if err == nil {
				claim.noting.Lock() // until it has committed
				noting = true
			}
			clock.start()
			if err != nil {
				return rollBack, nil, err
			}
			if state, err = claim.with(name, result); err != nil {
				return rollBack, nil, err
			}
			// Not with COMMIT in one message: after a loss of the connection it would not be known whether
			// the step was done, and so it could not be repeated.
			if note := claim.store.checkpoint(claim.q, claim.token, name, state); note != nil {
				err = note.Scan(claim.store.db.Query(ctx, tx, note.SQL, note.Args...))
			}
			return commit, nil, err
		})
		if err == nil || attempt == defaultAttempts || isInDoubt(err) || !isRetryable(err) {
			return result, claim.noted(err, state)
		}
		release()
		if !pause(ctx, attempt) {
			return result, claim.noted(err, state)
		}
	}
}

// Unknown ends the claim with an outcome that is not known: a gateway's answer did not come, say.
// Repeats are answered with the problem unknown and never executed, until an operator decides.
// Operators see the error, and the reference by which the provider knows the attempt, "" if there is
// none. What the handler answers or returns afterwards is told to its client alone.
//
// An error of Unknown means that this could not be stored yet. It is tried once more when the handler
// has returned. The end of ctx is ignored, since the work may have used up its time.
func (c *Claim[Tx]) Unknown(ctx context.Context, cause error, reference string) error {
	c.mu.Lock()
	if c.end == nil {
		c.end = &unknown{reference: sanitize(reference)}
		if cause != nil {
			c.end.reason = sanitize(cause.Error())
		}
	}
	c.mu.Unlock()
	return c.storeUnknown(context.WithoutCancel(ctx), defaultAttempts)
}

func (c *Claim[Tx]) storeUnknown(ctx context.Context, attempts int) error {
	c.noting.Lock() // of what ends the claim and of steps one at a time
	defer c.noting.Unlock()
	if c.heart.isLost() {
		return ErrLeaseLost
	}
	if c.end.stored || c.q.unprotected {
		return nil
	}
	end := c.store.unknown(c.q, c.token, c.end)
	err := again(ctx, attempts, func() error { return end.Scan(c.store.alone(ctx, end.SQL, end.Args)) })
	if err == nil {
		c.end.stored = true
		c.heart.settle()
	}
	return c.told(err)
}

// fail ends the claim retryably, unless Unknown was called. Where that can't be stored, the lease ends
// by itself.
func (c *Claim[Tx]) fail(ctx context.Context, attempts int, reason string, uncertain bool) {
	switch {
	case c.isUnknown():
		_ = c.storeUnknown(ctx, attempts)
	case !c.heart.isLost() && !c.q.unprotected:
		_ = c.told(again(ctx, attempts, func() error { return c.store.failAlone(ctx, c.q, c.token, reason, uncertain) }))
	}
}

// told takes the server's word that the claim is lost.
func (c *Claim[Tx]) told(err error) error {
	if isLost(err) {
		c.heart.lose()
		return ErrLeaseLost
	}
	return err
}

// isUnknown says whether Unknown was called.
func (c *Claim[Tx]) isUnknown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end != nil
}

func (c *Claim[Tx]) done(name string, result any) (bool, error) {
	if c.heart.isLost() {
		return false, ErrLeaseLost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		return false, errUnknown
	}
	raw, done := c.steps[name]
	if raw == nil {
		return done, nil
	}
	return done, json.Unmarshal(raw, result)
}

// with gives the state after a step.
func (c *Claim[Tx]) with(name string, result any) ([]byte, error) {
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	steps := maps.Clone(c.steps)
	steps[name] = raw
	return json.Marshal(steps)
}

func (c *Claim[Tx]) noted(err error, state []byte) error {
	if err = c.told(err); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return json.Unmarshal(state, &c.steps)
	}
	return err
}
