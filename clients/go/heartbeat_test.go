//go:build go1.25

package idempotency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type lostError struct{}

func (lostError) Error() string    { return "claim on this key is lost" }
func (lostError) SQLState() string { return "ID409" }

// beating starts a heartbeat with a lease of 30 s whose beats answer as told, each after a delay.
func beating(sent time.Time, extend func(context.Context) error) (h *heartbeat, calls *[]time.Duration, lost *int) {
	calls, lost = new([]time.Duration), new(int)
	h = &heartbeat{lease: 30 * time.Second, onLost: func() { *lost++ }}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.extend = func(ctx context.Context) error {
		*calls = append(*calls, time.Since(sent))
		return extend(ctx)
	}
	h.deadline = time.AfterFunc(time.Until(sent.Add(h.lease)), h.lose)
	h.startBeating(h.lease / 3)
	return h, calls, lost
}

func TestBeatsAreAThirdOfTheLeaseApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, calls, lost := beating(time.Now(), func(context.Context) error { return nil })
		time.Sleep(5 * time.Minute)
		if h.isLost() || h.ctx.Err() != nil {
			t.Error("lost")
		}
		h.end()
		if n := len(*calls); n != 29 && n != 30 || *lost != 0 {
			t.Error(n, *calls, *lost)
		}
	})
}

// One lost beat: the next comes a tenth of the lease later, and nothing is lost.
func TestALostBeatIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		h, calls, lost := beating(time.Now(), func(context.Context) error {
			defer func() { first = false }()
			if first {
				return errors.New("the connection is lost")
			}
			return nil
		})
		time.Sleep(35 * time.Second)
		if h.isLost() {
			t.Error("lost")
		}
		h.end()
		want := []time.Duration{10 * time.Second, 13 * time.Second, 23 * time.Second, 33 * time.Second}
		for i := range want {
			if len(*calls) != len(want) || *lost != 0 || (*calls)[i] != want[i] {
				t.Fatal(*calls, want)
			}
		}
	})
}

// Failed beats say nothing: the work goes on until the lease may have ended, counted from when the
// last request that succeeded was sent, which was 4 s before its answer came.
func TestWorkEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := time.Now()
		time.Sleep(4 * time.Second)
		h, calls, lost := beating(sent, func(ctx context.Context) error {
			<-ctx.Done() // the server swallows it
			return ctx.Err()
		})
		<-h.ctx.Done()
		if since := time.Since(sent); since != 30*time.Second {
			t.Error("told after", since)
		}
		if !errors.Is(context.Cause(h.ctx), ErrLeaseLost) {
			t.Error(context.Cause(h.ctx))
		}
		h.end()
		// Each is given up after 5 s, and 3 s later comes the next.
		if (*calls)[0] != 14*time.Second || (*calls)[1] != 22*time.Second || *lost != 1 {
			t.Error(*calls, *lost)
		}
	})
}

// A beat that was answered late counts from when it was sent.
func TestTheLeaseCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		first := true
		h, _, lost := beating(begun, func(ctx context.Context) error {
			if first {
				first = false
				time.Sleep(4 * time.Second)
				return nil
			}
			return errors.New("the connection is lost")
		})
		<-h.ctx.Done()
		if since := time.Since(begun); since != 40*time.Second {
			t.Error("told after", since)
		}
		if h.end(); *lost != 1 {
			t.Error(*lost)
		}
	})
}

func TestTheServersWordEndsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		h, _, lost := beating(begun, func(context.Context) error { return lostError{} })
		<-h.ctx.Done()
		if since := time.Since(begun); since != 10*time.Second || !h.isLost() {
			t.Error("told after", since)
		}
		if h.end(); *lost != 1 {
			t.Error(*lost)
		}
	})
}
