package idempotency

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// claimRequest has the arguments of idem_begin.
type claimRequest struct {
	key, scope, principal string
	identity              identity
	ttl, lease, wait      time.Duration
	derive                time.Duration // the window of a key that the server derives, or 0
	unprotected           bool          // there is no key, and the work is done without a claim
}

// granted notes the key of a claim: the server says it where it has derived one.
func (q *claimRequest) granted(c *claimed, err error) (*claimed, error) {
	if err == nil {
		q.key = c.key
	}
	return c, err
}

// claimed is what idem_begin said.
type claimed struct {
	outcome, key, failure, recoveryPoint string
	token                                int64
	attempt                              int
	recorded                             string // the record's status: completed, failed, ...
	status                               int    // of the answer, 0 if it has none
	headers, body, state                 []byte
	omitted                              bool
	retryAfter                           *float64 // in seconds
}

func scanClaim(row Row) (*claimed, error) {
	var key, recorded, failure, recoveryPoint *string
	var token, attempt, status *int64
	var omitted *bool
	c := new(claimed)
	err := row.Scan(&c.outcome, &key, &token, &attempt, &recorded, &status, &c.headers, &c.body, &omitted, &failure,
		&recoveryPoint, &c.state, &c.retryAfter)
	if err != nil {
		return nil, ofDatabase(err)
	}
	c.key, c.failure, c.recoveryPoint = value(key), value(failure), value(recoveryPoint)
	c.token, c.attempt, c.status = value(token), int(value(attempt)), int(value(status))
	c.recorded, c.omitted = value(recorded), value(omitted)
	return c, nil
}

func (s *Store[Tx]) beginArguments(q *claimRequest, lease time.Duration) []any {
	i := &q.identity
	key := &q.key
	if q.derive > 0 {
		key = nil
	}
	return []any{null(key), null(i.json), nullBytes(i.digest), null(i.method), null(i.target), nullArray(i.exclude),
		q.scope, q.principal, nullSpan(q.ttl), nullSpan(lease), nullSpan(q.wait), s.holder,
		lease == 0, nullSpan(q.derive)}
}

// begin is for a transactional claim, which has no lease and has to end before COMMIT; beginAlone
// for one that commits by itself.
func (s *Store[Tx]) begin(ctx context.Context, tx Tx, q *claimRequest) (*claimed, error) {
	if q.unprotected {
		return &claimed{outcome: outcomeExecute}, nil
	}
	return q.granted(scanClaim(s.db.Query(ctx, tx, beginSQL, s.beginArguments(q, 0)...)))
}

func (s *Store[Tx]) beginAlone(ctx context.Context, q *claimRequest) (*claimed, error) {
	if q.unprotected {
		return &claimed{outcome: outcomeExecute}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.DatabaseTimeout+q.wait, errTimeout)
	defer cancel()
	ask := func() (*claimed, error) {
		return q.granted(scanClaim(s.db.QueryAlone(ctx, beginSQL, s.beginArguments(q, q.lease)...)))
	}
	c, err := ask()
	if q.identity.becomesDigest(err) {
		c, err = ask()
	}
	return c, err
}

// complete stores an answer in the transaction of its claim.
func (s *Store[Tx]) complete(ctx context.Context, tx Tx, q *claimRequest, a *Answer) error {
	if q.unprotected {
		return ofDatabase(s.db.Check(ctx, tx))
	}
	var first *bool
	return ofDatabase(s.db.Query(ctx, tx, completeSQL, completeArguments(q, a, nil)...).Scan(&first))
}

// completeAlone may be repeated until an answer comes: the second changes nothing.
func (s *Store[Tx]) completeAlone(ctx context.Context, q *claimRequest, token int64, a *Answer) error {
	var first *bool
	return s.alone(ctx, completeSQL, completeArguments(q, a, token)).Scan(&first)
}

func completeArguments(q *claimRequest, a *Answer, token any) []any {
	headers, body := a.stored()
	return []any{q.key, int64(a.Status), nullBytes(body), headers, q.scope, q.principal, token}
}

// failAlone ends a claim retryably. An uncertain failure may have had an effect, so that the policy
// may make the claim unknown instead.
func (s *Store[Tx]) failAlone(ctx context.Context, q *claimRequest, token int64, reason string, uncertain bool) error {
	var first *bool
	arguments := []any{q.key, sanitize(reason), q.scope, q.principal, token, uncertain}
	return s.alone(ctx, failSQL, arguments).Scan(&first)
}

func (s *Store[Tx]) unknownAlone(ctx context.Context, q *claimRequest, token int64, u *unknown) error {
	var first *bool
	arguments := []any{q.key, nullEmpty(u.reason), nullEmpty(u.reference), q.scope, q.principal, token}
	return s.alone(ctx, unknownSQL, arguments).Scan(&first)
}

func (s *Store[Tx]) extendAlone(ctx context.Context, q *claimRequest, token int64) error {
	var until time.Time
	return ofDatabase(s.db.QueryAlone(ctx, extendSQL, q.key, token, q.scope, q.principal).Scan(&until))
}

func checkpointArguments(q *claimRequest, token int64, point string, state []byte) []any {
	return []any{q.key, point, string(state), q.scope, q.principal, token}
}

// A document of the server never changes, so each is asked for once.
func (s *Store[Tx]) problemOf(ctx context.Context, word string) (document map[string]any, err error) {
	text, known := s.problems.Load(word)
	if !known {
		var asked []byte
		if err := s.alone(ctx, problemSQL, []any{word}).Scan(&asked); err != nil {
			return nil, err
		}
		text = asked
		s.problems.Store(word, asked)
	}
	err = json.Unmarshal(text.([]byte), &document)
	return document, err
}

// alone runs a statement of its own within the store's timeout.
func (s *Store[Tx]) alone(ctx context.Context, sql string, args []any) Row {
	ctx, cancel := context.WithTimeoutCause(ctx, s.DatabaseTimeout, errTimeout)
	return boundRow{s.db.QueryAlone(ctx, sql, args...), cancel}
}

// boundRow ends its context when it has been read.
type boundRow struct {
	row    Row
	cancel context.CancelFunc
}

func (r boundRow) Scan(dest ...any) error {
	defer r.cancel()
	return ofDatabase(r.row.Scan(dest...))
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func null(text *string) any {
	if text == nil {
		return nil
	}
	return *text
}

func nullEmpty(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func nullBytes(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func nullSpan(d time.Duration) any {
	if d <= 0 {
		return nil
	}
	return max(d.Milliseconds(), 1)
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func nullArray(list []string) any {
	if len(list) == 0 {
		return nil
	}
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = `"` + arrayEscapes.Replace(text) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}
