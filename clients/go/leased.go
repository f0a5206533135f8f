package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// runLeased does work under a claim that commits before it, and stores its answer with the token.
// Where work says that its answer is not to be kept, fails or panics, the claim is failed retryably,
// never released: the work may have had an effect. Only an error by NothingHappened is not uncertain.
// An answer that work raises is stored.
// Where work has declared its outcome unknown, nothing else is stored.
func (s *Store[Tx]) runLeased(ctx context.Context, q *claimRequest, attempts int, onLost func(*claimed),
	work func(context.Context, *Claim[Tx]) (*Answer, Verdict, error)) (v verdict, err error) {
	var sent time.Time
	err = again(ctx, attempts, func() error {
		sent = time.Now()
		v.claim, err = s.beginAlone(ctx, q)
		return err
	})
	if err != nil || v.claim.outcome != outcomeExecute {
		return v, err
	}
	return s.settle(ctx, q, v.claim, sent, attempts, onLost, work)
}

// settle does work under a claim that was asked for when sent says, and ends it.
func (s *Store[Tx]) settle(ctx context.Context, q *claimRequest, c *claimed, sent time.Time, attempts int, onLost func(*claimed),
	work func(context.Context, *Claim[Tx]) (*Answer, Verdict, error)) (v verdict, err error) {
	v.claim = c
	// The client's going away is no reason to stop halfway; a deadline is.
	held := context.WithoutCancel(ctx)
	heart := s.startHeartbeat(held, q, v.claim.token, sent, func() { onLost(v.claim) })
	defer heart.end()
	working := heart.ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		working, cancel = context.WithDeadline(working, deadline)
		defer cancel()
	}

	claim := newClaim(s, q, v.claim, heart)
	defer func() {
		if !v.ran {
			claim.fail(held, attempts, "the handler panicked", true)
		}
	}()
	answer, verdict, err := work(working, claim)
	v.answer, v.ran = answer, true
	heart.stopBeating()
	if isRaised(answer, verdict, err) {
		err = nil
	}
	switch {
	case err != nil:
		claim.fail(held, attempts, err.Error(), !errors.Is(err, ErrNothingHappened))
	case verdict == Unknown && !claim.isUnknown():
		_ = claim.Unknown(held, fmt.Errorf("status %d", answer.Status), "")
	case verdict != Keep || claim.isUnknown():
		claim.fail(held, attempts, fmt.Sprint("status ", answer.Status), verdict != Free)
	default:
		if err = s.completeLeased(heart, q, claim.token, answer); err != nil && !isUnavailable(err) {
			claim.fail(held, attempts, err.Error(), true)
		}
		// The database is away until the lease ends: whether it was stored is not known.
		if isUnavailable(err) {
			return v, err
		}
	}
	v.lost = heart.isLost()
	return v, err
}

// completeLeased tries for as long as the claim is held: the work is done, and its answer is worth
// the wait.
func (s *Store[Tx]) completeLeased(heart *heartbeat, q *claimRequest, token int64, a *Answer) error {
	if q.unprotected {
		return nil
	}
	for attempt := 1; ; attempt++ {
		if heart.isLost() {
			return ErrLeaseLost
		}
		err := s.completeAlone(heart.ctx, q, token, a)
		if isLost(err) {
			heart.lose()
			return ErrLeaseLost
		}
		if err == nil || !isUnavailable(err) && heart.ctx.Err() == nil || !pause(heart.ctx, attempt) {
			return err
		}
	}
}
