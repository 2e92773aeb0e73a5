package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/connlimit"
)

// StrangerListener is a listener whose Accept can be ended without closing it, as that of TCP.
type StrangerListener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// AnswerStrangers answers the questions of Hello and AskToFound for a process that is no node yet, until ctx ends, and returns when no answer is under way any more. The
// listener stays open: what connects afterwards waits for the node that is opened on it. answer is given the server id of the node that asks to found a
// cluster, empty if the question is only who is here. It may be called from several goroutines.
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
			<-woken // or the deadline would come after it is taken away
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
			defer func() { _ = conn.Close() }() // the answer was sent, or the question was none
			_ = during(ctx, conn, func() error { return answerStranger(conn, answer) })
		})
	}
}

// answerStranger reads a question and answers it. Who asks for more is a node of a cluster: there is none here.
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
	return writeGreeting(conn, greeting{version: protocolVersion, verdict: verdict, group: question.group, receiver: question.sender})
}
