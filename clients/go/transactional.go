package idempotency

import "context"

// A verdict is what became of a request.
type verdict struct {
	claim  *claimed // what idem_begin said last, nil if nothing
	answer *Answer  // of the work, whether kept or not
	ran    bool     // the work has run
	lost   bool     // another session has the claim, or none has
}

// runTransactional does work in the transaction of its claim, and stores its answer there; where work
// says that it is not to be kept, nothing has happened. All of it is repeated after a conflict or the
// loss of a connection. After a COMMIT whose answer is lost, the repetition finds the record, if it
// was done; without a record that is not known, and it is not repeated.
func (s *Store[Tx]) runTransactional(ctx context.Context, q *claimRequest, attempts int,
	work func(context.Context, Tx, *claimed) (*Answer, bool, error)) (v verdict, err error) {
	once := func(ctx context.Context, tx Tx, clock *clock) (commit bool, err error) {
		if v.claim, err = s.begin(ctx, tx, q); err != nil || v.claim.outcome != outcomeExecute {
			return false, err
		}
		clock.stop()
		v.ran = true
		v.answer, commit, err = work(ctx, tx, v.claim)
		clock.start()
		if err != nil || !commit {
			return false, err
		}
		return true, s.complete(ctx, tx, q, v.answer)
	}
	err = again(ctx, attempts, func() error {
		v.answer.close()
		v.claim, v.answer = nil, nil
		err := s.inTransaction(ctx, q.wait, once)
		if v.claim == nil && q.identity.becomesDigest(err) {
			err = s.inTransaction(ctx, q.wait, once)
		}
		if q.unprotected && isInDoubt(err) {
			return unrecordedError{err}
		}
		return err
	})
	return v, err
}
