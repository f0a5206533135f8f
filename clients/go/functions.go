package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// A Request is what the functions are asked for; Key and Scope are what names it, within what its
// Principal asks for. Content, if there is one, has to be the same in every repeat: it is compared as
// JSON, without the fields in Exclude.
type Request struct {
	Key, Scope, Principal string
	Content               any
	Exclude               []string
	// TTL, Lease and Wait are as in Route.
	TTL, Lease, Wait time.Duration
	// Attempts is how often work is run when its transaction fails to serialize, deadlocks or loses
	// its connection: by default 5.
	Attempts int
}

func (r Request) claim() (*claimRequest, int, error) {
	if min(r.TTL, r.Lease, r.Wait, time.Duration(r.Attempts)) < 0 {
		return nil, 0, errors.New("idempotency: an option of the Request is negative")
	}
	orDefault(&r.Lease, defaultLeaseMs*time.Millisecond)
	orDefault(&r.Attempts, defaultAttempts)
	q := &claimRequest{key: r.Key, scope: r.Scope, principal: r.Principal,
		ttl: r.TTL, lease: r.Lease, wait: r.Wait}
	if r.Content != nil {
		content, err := json.Marshal(r.Content)
		if err != nil {
			return nil, 0, err
		}
		text := string(content)
		q.identity = identity{json: &text, mediaType: "application/json", exclude: r.Exclude}
	}
	return q, r.Attempts, nil
}

// Transactionally does work in the transaction that holds its claim, and keeps its result, which has
// to fit into JSON, for every repeat. An error of work undoes all of it. What is not done is a
// *Refusal. Work may run several times, of which one commits.
func Transactionally[T, Tx any](ctx context.Context, store *Store[Tx], request Request,
	work func(context.Context, Tx) (T, error)) (result T, err error) {
	q, attempts, err := request.claim()
	if err != nil {
		return result, err
	}
	v, err := store.runTransactional(ctx, q, attempts,
		func(ctx context.Context, tx Tx, c *claimed) (*Answer, Verdict, error) {
			return answerOf(work(withCurrent(ctx, &current[Tx]{info: infoOf(q, c), tx: tx}), tx))
		})
	return resultOf[T](v, err)
}

// Leased does work outside the database, under a claim that commits before it and is prolonged while
// it runs. An error of work ends the claim: it may be tried again, or its outcome is unknown where the
// policy of the scope has on_lease_expiry => 'unknown'. An error made by NothingHappened may always be
// tried again. When the claim is lost, the context of work ends with the cause ErrLeaseLost, and so
// does Leased.
func Leased[T, Tx any](ctx context.Context, store *Store[Tx], request Request,
	work func(context.Context, *Claim[Tx]) (T, error)) (result T, err error) {
	q, attempts, err := request.claim()
	if err != nil {
		return result, err
	}
	v, err := store.runLeased(ctx, q, attempts, func(*claimed) {},
		func(ctx context.Context, claim *Claim[Tx]) (*Answer, Verdict, error) {
			return answerOf(work(withCurrent(ctx, &current[Tx]{info: claim.Info, claim: claim}), claim))
		})
	return resultOf[T](v, err)
}

// Once handles a message that may be delivered several times, in a transaction: it answers whether
// this call was the first. An error of work undoes all of it, so that the next delivery is the first.
// Acknowledge the message when the error is nil, whatever first is.
func Once[Tx any](ctx context.Context, store *Store[Tx], id, scope, principal string,
	work func(context.Context, Tx) error) (first bool, err error) {
	err = again(ctx, defaultAttempts, func() error {
		return store.inTransaction(ctx, 0, nil, func(ctx context.Context, tx Tx, clock *clock) (end, *Statement, error) {
			clock.stop() // another delivery is waited for
			if err := store.db.Query(ctx, tx, onceSQL, id, scope, principal).Scan(&first); err != nil || !first {
				return rollBack, nil, ofDatabase(err)
			}
			err := work(ctx, tx)
			clock.start()
			return commit, nil, err
		})
	})
	return first && err == nil, err
}

func answerOf[T any](result T, err error) (*Answer, Verdict, error) {
	if err != nil {
		return nil, ByStatus, err
	}
	body, err := json.Marshal(result)
	header := http.Header{"Content-Type": {"application/json"}}
	return &Answer{Status: http.StatusOK, Header: header, Body: body}, Keep, err
}

func resultOf[T any](v verdict, err error) (result T, _ error) {
	if v.lost {
		return result, ErrLeaseLost
	}
	if err != nil {
		return result, err
	}
	answer := v.answer
	if v.claim.outcome == outcomeReplay {
		if answer, err = storedAnswer(v.claim); err != nil {
			return result, err
		}
		if answer == nil {
			return result, &Refusal{Outcome: outcomeFailed, Reason: v.claim.failure}
		}
	} else if v.claim.outcome != outcomeExecute {
		return result, &Refusal{v.claim.outcome, seconds(v.claim.retryAfter), v.claim.failure}
	}
	if len(answer.Body) > 0 {
		err = json.Unmarshal(answer.Body, &result)
	}
	return result, err
}
