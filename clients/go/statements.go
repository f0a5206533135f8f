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

// begin reads its row into a claim, and the key with it: the server says it where it has derived one.
// A transactional claim has no lease and has to end before COMMIT.
func (s *Store[Tx]) begin(q *claimRequest, lease time.Duration, claim **claimed) *Statement {
	if q.unprotected {
		return nil
	}
	return &Statement{beginSQL, s.beginArguments(q, lease), func(row Row) error {
		c, err := scanClaim(row)
		if err == nil {
			*claim, q.key = c, c.key
		}
		return err
	}}
}

func (s *Store[Tx]) beginAlone(ctx context.Context, q *claimRequest) (*claimed, error) {
	if q.unprotected {
		return &claimed{outcome: outcomeExecute}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.DatabaseTimeout+q.wait, errTimeout)
	defer cancel()
	var c *claimed
	ask := func() error {
		begin := s.begin(q, q.lease, &c)
		return begin.Scan(s.db.QueryAlone(ctx, begin.SQL, begin.Args...))
	}
	err := ask()
	if q.identity.becomesDigest(err) {
		err = ask()
	}
	return c, err
}

// complete stores an answer, and is nothing where there is no claim.
func (s *Store[Tx]) complete(q *claimRequest, a *Answer, token any) *Statement {
	if q.unprotected {
		return nil
	}
	headers, body := a.stored()
	var status any // none where a worker's handler answers nothing
	if a.Status != 0 {
		status = int64(a.Status)
	}
	return &Statement{completeSQL, []any{q.key, status, nullBytes(body), headers, q.scope, q.principal, token},
		func(row Row) error {
			var first *bool
			return ofDatabase(row.Scan(&first))
		}}
}

// completeAlone may be repeated until an answer comes: the second changes nothing.
func (s *Store[Tx]) completeAlone(ctx context.Context, q *claimRequest, token int64, a *Answer) error {
	complete := s.complete(q, a, token)
	return complete.Scan(s.alone(ctx, complete.SQL, complete.Args))
}

// failAlone ends a claim retryably. An uncertain failure may have had an effect, so that the policy
// may make the claim unknown instead.
func (s *Store[Tx]) failAlone(ctx context.Context, q *claimRequest, token int64, reason string, uncertain bool) error {
	var first *bool
	arguments := []any{q.key, sanitize(reason), q.scope, q.principal, token, uncertain}
	return s.alone(ctx, failSQL, arguments).Scan(&first)
}

// unknown is nothing where there is no claim.
func (s *Store[Tx]) unknown(q *claimRequest, token int64, u *unknown) *Statement {
	if q.unprotected {
		return nil
	}
	return &Statement{unknownSQL, []any{q.key, nullEmpty(u.reason), nullEmpty(u.reference), q.scope, q.principal, token},
		func(row Row) error {
			var first *bool
			return ofDatabase(row.Scan(&first))
		}}
}

// A due record and the claim on it.
type due struct {
	claimed
	scope, principal        string
	operation, method, path string
	request                 []byte
}

// dueAlone claims what no client sends again.
func (s *Store[Tx]) dueAlone(ctx context.Context, scope string, most int, lease time.Duration) (list []*due, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.DatabaseTimeout, errTimeout)
	defer cancel()
	scan := func(row Row) error {
		d := &due{claimed: claimed{outcome: outcomeExecute}}
		var operation, method, path, recoveryPoint, failure *string
		err := row.Scan(&d.key, &d.scope, &d.principal, &d.token, &d.attempt, &operation, &method, &path, &d.request,
			&recoveryPoint, &d.state, &failure)
		d.operation, d.method, d.path = value(operation), value(method), value(path)
		d.recoveryPoint, d.failure = value(recoveryPoint), value(failure)
		list = append(list, d)
		return err
	}
	err = s.db.QueryAll(ctx, scan, dueSQL, scope, int64(most), nullSpan(lease), s.holder)
	return list, late(ctx, ofDatabase(err))
}

func (s *Store[Tx]) extendAlone(ctx context.Context, q *claimRequest, token int64) error {
	var until time.Time
	return ofDatabase(s.db.QueryAlone(ctx, extendSQL, q.key, token, q.scope, q.principal).Scan(&until))
}

// checkpoint is nothing where there is no claim.
func (s *Store[Tx]) checkpoint(q *claimRequest, token int64, point string, state []byte) *Statement {
	if q.unprotected {
		return nil
	}
	return &Statement{checkpointSQL, []any{q.key, point, string(state), q.scope, q.principal, token},
		func(row Row) error {
			var until any
			return ofDatabase(row.Scan(&until))
		}}
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
