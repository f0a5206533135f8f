package try

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What becomes of something that a client sends to the database.
type Fate int

const (
	Pass      Fate = iota
	Cut            // both sides are closed, and it does not arrive
	CutAfter       // it arrives; both sides are closed when the database answers
	Mute           // it does not arrive, and nothing comes back any more
	MuteAfter      // it arrives, and nothing comes back any more
)

// A Wire stands between a pool and the database. It counts how often a client waits: how often it
// sends something after the database has answered. The ROLLBACK after a replay delays no answer.
type Wire struct {
	Pool  *pgxpool.Pool
	waits atomic.Int64
	mu    sync.Mutex
	fate  func(sent []byte) Fate
}

// Waits are those since it was asked last.
func (w *Wire) Waits() int64 { return w.waits.Swap(0) }

// Decide is asked about everything that is sent from now on.
func (w *Wire) Decide(fate func(sent []byte) Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fate = fate
}

func (w *Wire) fateOf(sent []byte) Fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fate == nil {
		return Pass
	}
	return w.fate(sent)
}

// Through is Pool with a Wire before the database; options belong to the connection string.
func Through(t testing.TB, options string) *Wire {
	t.Helper()
	w := &Wire{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			w.join(client)
		}
	}()
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	w.Pool, err = pgxpool.New(context.Background(),
		"host="+host+" port="+port+" sslmode=disable pool_max_conns=20 "+options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Pool.Close)
	return w
}

func (w *Wire) join(client net.Conn) {
	network, address := "tcp", net.JoinHostPort(os.Getenv("PGHOST"), os.Getenv("PGPORT"))
	if os.Getenv("PGHOST")[0] == '/' {
		network, address = "unix", os.Getenv("PGHOST")+"/.s.PGSQL."+os.Getenv("PGPORT")
	}
	server, err := net.Dial(network, address)
	if err != nil {
		client.Close()
		return
	}
	closeBoth := func() { client.Close(); server.Close() }
	var answered, muted, last atomic.Bool
	pump := func(from net.Conn, handle func([]byte) bool) {
		defer closeBoth()
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			if err != nil || !handle(buffer[:n]) {
				return
			}
		}
	}
	go pump(client, func(sent []byte) bool {
		if !bytes.Contains(sent, []byte("ROLLBACK")) && answered.Swap(false) {
			w.waits.Add(1)
		}
		switch w.fateOf(sent) {
		case Cut:
			return false
		case CutAfter:
			last.Store(true)
		case Mute:
			muted.Store(true)
			return true
		case MuteAfter:
			muted.Store(true)
		}
		_, err := server.Write(sent)
		return err == nil
	})
	go pump(server, func(answer []byte) bool {
		answered.Store(true)
		if last.Load() {
			return false
		}
		if muted.Load() {
			return true
		}
		_, err := client.Write(answer)
		return err == nil
	})
}
