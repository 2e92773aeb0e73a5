package nodetest

import (
	"context"
	"net"
	"time"
)

// slowly returns dial with connections on which each write takes a moment. What is repeated at once
// and without end then still lets time pass, and a test that waits for its end can fail.
func slowly(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return slow{conn}, nil
	}
}

type slow struct{ net.Conn }

// Write implements net.Conn.
func (s slow) Write(p []byte) (int, error) {
	pass(time.Millisecond)
	return s.Conn.Write(p)
}
