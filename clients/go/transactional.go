package idempotency

import (
	"context"
	"errors"
	"fmt"
)

// A verdict is what became of a request.
type verdict struct {
	claim  *claimed // what idem_begin said last, nil if nothing
	answer *Answer  // of the work, whether kept or not
	ran    bool     // the work has run
	lost   bool     // another session has the claim, or none has
}

// errRaised: the work has failed with an answer to keep.
var errRaised = errors.New("idempotency: the work has raised an answer")

// isRaised says of an answer, which is to be kept, and an error that the work gave both: the answer
// then is kept without the work.
func isRaised(a *Answer, verdict Verdict, err error) bool {
	return err != nil && verdict == Keep && a != nil && a.Status >= 400 && a.Status < 500 && !isRetryable(err) &&
		!errors.Is(err, ErrNothingHappened) && !errors.Is(err, ErrHandlerTimeout)
}

// runTransactional does work in the transaction of its claim, and stores its answer there; where work
// says that it is not to be kept, nothing has happened. An answer that work raises is stored in a
// transaction of its own, after that of the work has been rolled back.
//
// All of it is repeated after a conflict or the loss of a connection. After a COMMIT whose answer is
// lost, the repetition finds the record, if it was done; without a record that is not known, and it is
// not repeated.
func (s *Store[Tx]) runTransactional(ctx context.Context, q *claimRequest, attempts int,
	work func(context.Context, Tx, *claimed) (*Answer, Verdict, error)) (v verdict, err error) {
	var raised *Answer
	once := func(ctx context.Context, tx Tx, clock *clock) (end, *Statement, error) {
		if v.claim.outcome != outcomeExecute {
			return rollBackLater, nil, nil
		}
		if raised != nil {
			v.answer = raised
			return commit, s.complete(q, raised, nil), nil
		}
		clock.stop()
		v.ran = true
		answer, verdict, err := work(ctx, tx, v.claim)
		clock.start()
		v.answer = answer
		switch {
		case isRaised(answer, verdict, err):
			raised = answer
			return rollBack, nil, errRaised
		case err != nil || verdict == ByStatus || verdict == Free:
			return rollBack, nil, err
		case verdict == Unknown:
			return commit, s.unknown(q, v.claim.token, &unknown{reason: fmt.Sprint("status ", answer.Status)}), nil
		}
		return commit, s.complete(q, answer, nil), nil
	}
	ask := func() error {
		v.claim = nil
		if q.unprotected {
			v.claim = &claimed{outcome: outcomeExecute}
		}
		err := s.inTransaction(ctx, q.wait, s.begin(q, 0, &v.claim), once)
		if v.claim == nil && q.identity.becomesDigest(err) {
			err = s.inTransaction(ctx, q.wait, s.begin(q, 0, &v.claim), once)
		}
		return err
	}
	again := false // a transaction of ours may still be open
	for attempt := 1; ; attempt++ {
		if v.answer != raised {
			v.answer.close()
		}
		v.answer = nil
		err = ask()
		if err == errRaised {
			if err = nil; !q.unprotected {
				err = ask()
			}
		}
		switch {
		case q.unprotected && isInDoubt(err):
			return v, unrecordedError{err}
		case attempt >= attempts || !(isRetryable(err) || err == nil && again && v.claim.outcome == outcomeInProgress):
			return v, err
		}
		again = again || err != nil
		if !pause(ctx, attempt) {
			return v, err
		}
	}
}
