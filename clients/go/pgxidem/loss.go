//go:build unix

package pgxidem

import (
	"bytes"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Loss is the error of a connection that the server has closed while the handler does something else.
// It looks at what has arrived, and takes nothing of it: pgx may be reading. A server that ends a
// session says why, by an error, which stays unread if the handler does not ask for anything. So an
// error counts that is there at two looks. What is encrypted is not understood: a loss then shows at
// the next statement.
func (database) Loss(tx pgx.Tx) error {
	t := tx.(*transaction)
	socket, ok := t.conn.PgConn().Conn().(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	unread, closed := make([]byte, 512), false
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), unread, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil
		unread = unread[:max(n, 0)]
	})
	seen := t.unread
	t.unread = bytes.Clone(unread)
	switch {
	case closed:
		return net.ErrClosed
	case len(unread) > 0 && unread[0] == 'E' && bytes.Equal(unread, seen):
		return &pgconn.PgError{Severity: "FATAL", Code: stateIn(unread), Message: "the server has ended the session"}
	}
	return nil
}

// stateIn an ErrorResponse: after kind and length come fields, each with a letter and ended by a NUL.
func stateIn(message []byte) string {
	for _, field := range bytes.Split(message[min(5, len(message)):], []byte{0}) {
		if len(field) == 6 && field[0] == 'C' {
			return string(field[1:])
		}
	}
	return "08006"
}
