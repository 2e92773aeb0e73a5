// Package demo plays a short story with a Belfry server: jobs that are put with delays, ring when
// they are due, fail and come back, are cancelled, die and rise. It shows it as a picture on a
// terminal and as plain lines elsewhere.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client"
)

// Config says where the story is played and shown.
type Config struct {
	// URLs are the servers, separated by commas. Their queues of the demo's names must be empty.
	URLs string
	// Nodes stops and starts a node in the middle of the story; nil leaves them alone.
	Nodes Nodes
	// Out takes the picture or the lines.
	Out io.Writer
	// Picture draws on a terminal; without it every event is a line.
	Picture bool
	// Color allows colours in the picture.
	Color bool
	// Size returns the columns and rows of the terminal.
	Size func() (columns, rows int)
	// Seed decides when the jobs of the choir ring.
	Seed uint64
	// Title is what the picture says about the server.
	Title string
}

// Nodes are the nodes of a cluster that the story may stop.
type Nodes interface {
	// StopLeader stops the node that leads a queue's shard and returns its name, StartAgain starts it
	// and returns its name. They are called once each, in this order.
	StopLeader(ctx context.Context, queue string) (name string, err error)
	StartAgain(ctx context.Context) (name string, err error)
}

const (
	// framePeriod is how often the picture is drawn.
	framePeriod = 50 * time.Millisecond
	// endWait is how long the demo waits for its end after the last job is due. On a busy machine the
	// answer with a job may be lost, and the job comes again after its lease of half a minute.
	endWait = 40 * time.Second
)

// Run plays the story, which takes about 17 seconds, and shows it. It fails if a job did not ring,
// or rang early.
func Run(ctx context.Context, cfg Config) error {
	began := time.Now()
	b := newBoard(began, storyLength)
	sdk, err := client.New(cfg.URLs) //nolint:contextcheck // its calls take contexts of their own
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer func() { _ = sdk.Close() }() // the story is over
	stage := &stage{board: b, queues: sdk, nodes: cfg.Nodes, seed: cfg.Seed}
	var show screen = newPlain(cfg.Out, b)
	if columns, rows := cfg.Size(); cfg.Picture && columns >= columnsMin && rows >= rowsMin {
		show = newPainter(cfg, b)
	}
	playCtx, stop := context.WithTimeout(ctx, storyLength+endWait)
	defer stop()
	var played error
	var group sync.WaitGroup
	group.Go(func() {
		defer stop()
		played = stage.play(playCtx)
	})
	shown := showUntil(playCtx, show)
	group.Wait()
	show.finish()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(played, context.DeadlineExceeded):
		return fmt.Errorf("the demo did not end in time: %w", b.check())
	case played != nil:
		return played
	case shown != nil:
		return shown
	}
	return b.check()
}

// screen shows the board.
type screen interface {
	// draw shows what there is now.
	draw() error
	// finish shows the end and gives the terminal back.
	finish()
}

// showUntil draws until ctx ends.
func showUntil(ctx context.Context, show screen) error {
	ticker := time.NewTicker(framePeriod)
	defer ticker.Stop()
	for {
		if err := show.draw(); err != nil {
			return fmt.Errorf("drawing: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
