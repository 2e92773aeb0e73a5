package pipetest

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
)

// TestListener sends it a connection, waits for another one that does not come, and closes it.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen("n1")
		if addr := l.Addr(); addr.Network() != "memory" || addr.String() != "n1" {
			t.Errorf("its address is %v %v", addr.Network(), addr)
		}
		near, far := net.Pipe()
		defer near.Close()
		go func() { l.Conns() <- far }()
		if got, err := l.Accept(); err != nil || got != far {
			t.Errorf("the connection: %v, %v", got, err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("without a connection: %v", err)
		case <-l.Done():
			t.Error("it is done before it is closed")
		default:
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		<-l.Done()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
