package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/connlimit"
)

// StrangerListener is a listener whose Accept can be ended without closing the listener, such as
// that of TCP.
type StrangerListener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// AnswerStrangers answers Hello and AskToFound for a process that is not a node yet, until ctx
// ends. It returns when all answers are sent. The listener stays open: a later connection waits for
// the node that is opened on it. answer gets the server id of the node that asks to found a
// cluster, or an empty one if the question is a Hello. answer may be called from several
// goroutines.
func AnswerStrangers(ctx context.Context, listener StrangerListener, answer func(asker string) Introduction) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = listener.SetDeadline(time.Unix(1, 0)) // in the past
	})
	defer stop()
	var answering sync.WaitGroup
	defer answering.Wait()
	handshakes := connlimit.New(handshakesMax)
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close() // it asks again
			}
			<-woken // else the deadline might be set after its removal below
			if err := listener.SetDeadline(time.Time{}); err != nil {
				return fmt.Errorf("listening on for other nodes: %w", err)
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("answering other nodes: %w", err)
		case err != nil: // out of file descriptors, most likely
			pause := time.NewTimer(100 * time.Millisecond)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
			continue
		}
		slot, _ := handshakes.Acquire(conn) // never nil: no slot is pinned here
		answering.Go(func() {
			defer slot.Release()
			defer func() { _ = conn.Close() }() // the answer was sent, or the question was not valid
			_ = during(ctx, conn, func() error { return answerStranger(conn, answer) })
		})
	}
}

// answerStranger reads a question and answers it. It refuses the greeting of a member: this process
// has no cluster.
func answerStranger(conn net.Conn, answer func(asker string) Introduction) error {
	question, err := readGreeting(conn)
	if err != nil {
		return err
	}
	if question.isStranger() {
		if question.sender != "" {
			if err := disproved(conn, question.sender); err != nil {
				return err
			}
		}
		return writeIntroduction(conn, answer(question.sender))
	}
	verdict := refusedReceiver
	if question.version != protocolVersion {
		verdict = refusedVersion
	}
	return writeGreeting(conn, greeting{version: protocolVersion, verdict: verdict, group: question.group,
		receiver: question.sender})
}
