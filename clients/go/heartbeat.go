package idempotency

import (
	"context"
	"sync"
	"time"
)

// A heartbeat keeps a lease alive while its holder works, with statements of its own. A beat comes at
// a third of the lease, and after one that failed again at a tenth of it. A failed beat says nothing
// about who owns the claim, so the work goes on until the lease may have ended: that is counted by
// the monotonic clock from the moment at which the last request that succeeded was sent, so never
// longer than the server counts. Then, or when the server says that the claim is lost, ctx ends with
// the cause ErrLeaseLost.
type heartbeat struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	lease  time.Duration
	onLost func()
	extend func(context.Context) error

	beating context.CancelFunc
	done    chan struct{} // closed when there are no more beats

	mu       sync.Mutex
	deadline *time.Timer
	lost     bool
	ended    bool
	telling  sync.WaitGroup // onLost is running
}

func (s *Store[Tx]) startHeartbeat(ctx context.Context, q *claimRequest, token int64, sent time.Time,
	onLost func()) *heartbeat {
	h := &heartbeat{lease: q.lease, onLost: onLost, done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.beating = func() {}
	if q.unprotected {
		close(h.done)
		return h
	}
	h.extend = func(ctx context.Context) error { return s.extendAlone(ctx, q, token) }
	h.mu.Lock()
	h.deadline = time.AfterFunc(time.Until(sent.Add(h.lease)), h.lose)
	h.mu.Unlock()
	h.startBeating(h.lease / 3)
	return h
}

// startBeating also begins again after stopBeating, for work that runs again.
func (h *heartbeat) startBeating(next time.Duration) {
	beats, stop := context.WithCancel(h.ctx)
	h.beating, h.done = stop, make(chan struct{})
	go h.run(beats, h.done, next)
}

func (h *heartbeat) run(ctx context.Context, done chan<- struct{}, next time.Duration) {
	defer close(done)
	for {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
		next = h.lease / 10
		sent := time.Now()
		err := h.beat(ctx)
		switch {
		case err == nil:
			h.prolong(sent)
			next = max(time.Until(sent.Add(h.lease/3)), 0)
		case isLost(err):
			h.lose()
			return
		}
	}
}

// A beat that hangs leaves time for others.
func (h *heartbeat) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.lease/6)
	defer cancel()
	return h.extend(ctx)
}

// prolong after a request that the server has granted.
func (h *heartbeat) prolong(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline != nil && h.deadline.Stop() {
		h.deadline.Reset(time.Until(sent.Add(h.lease)))
	}
}

func (h *heartbeat) lose() {
	h.mu.Lock()
	first := !h.lost && !h.ended
	if first {
		h.lost = true
		h.telling.Add(1)
	}
	h.mu.Unlock()
	if first {
		h.cancel(ErrLeaseLost)
		h.onLost()
		h.telling.Done()
	}
}

func (h *heartbeat) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// stopBeating when the work has ended; the deadline stays.
func (h *heartbeat) stopBeating() {
	h.beating()
	<-h.done
}

// settle when the claim has ended and the work goes on: there is no lease to lose any more.
func (h *heartbeat) settle() {
	h.stopBeating()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.deadline != nil {
		h.deadline.Stop()
	}
}

func (h *heartbeat) end() {
	h.settle()
	h.telling.Wait()
	h.cancel(nil)
}
