// Package demo plays a short story with a Belfry server: jobs that are put with delays, ring when they are due, fail and
// come back, are cancelled, die and rise. It shows it as a picture on a terminal and as plain lines elsewhere.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// Config says where the story is played and shown.
type Config struct {
	// URL is the server. Its queues of the demo's names must be empty.
	URL string
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

const (
	// frames is how often the picture is drawn.
	framePeriod = 50 * time.Millisecond
	// patience is how long the demo waits for the end after the last job is due.
	patience = 5 * time.Second
)

// Run plays the story, which takes about 22 seconds, and shows it. It fails if a job did not ring, or rang early.
func Run(ctx context.Context, cfg Config) error {
	began := time.Now()
	b := newBoard(began, storyLength)
	stage := &stage{
		board:  b,
		queues: belfryv1connect.NewQueueServiceClient(http.DefaultClient, cfg.URL),
		seed:   cfg.Seed,
	}
	var show screen = newPlain(cfg.Out, b)
	if columns, rows := cfg.Size(); cfg.Picture && columns >= columnsMin && rows >= rowsMin {
		show = newPainter(cfg, b)
	}
	playCtx, stop := context.WithTimeout(ctx, storyLength+patience)
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
