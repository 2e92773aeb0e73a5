package pair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/client"
)

// epochDelay keeps the job of an epoch from ever falling due.
const epochDelay = 90 * 365 * 24 * time.Hour

// epochRecord is the body of an epoch's job, for people who read it.
type epochRecord struct {
	RedisQueue string `json:"redisQueue"`
	Queue      string `json:"queue"`
	Epoch      int    `json:"epoch"`
}

// CurrentEpoch asks Belfry which epoch the pair is in; 1 at first.
func (l *Link) CurrentEpoch(ctx context.Context) (int, error) {
	for n := 2; ; n++ {
		_, err := l.Belfry.Get(ctx, l.control, epochID(n))
		switch {
		case errors.Is(err, client.ErrJobNotFound), errors.Is(err, client.Reason("QUEUE_NOT_FOUND")):
			return n - 1, nil
		case err != nil:
			return 0, fmt.Errorf("reading how often the queue was brought over: %w", err)
		}
	}
}

// BeginEpoch writes down that an epoch has begun. Repeating it changes nothing.
func (l *Link) BeginEpoch(ctx context.Context, epoch int) error {
	body, err := json.Marshal(epochRecord{l.RedisQueue, l.Queue, epoch})
	if err != nil {
		return fmt.Errorf("writing down an epoch: %w", err)
	}
	_, err = l.Belfry.Put(ctx, l.control, body, client.ID(epochID(epoch)), client.In(epochDelay))
	if err != nil {
		return fmt.Errorf("writing down that epoch %d has begun: %w", epoch, err)
	}
	return nil
}

func epochID(n int) string { return "epoch:" + strconv.Itoa(n) }

// TakenBack reports whether an export began an epoch, and no process decided since that entries
// come over again.
func (l *Link) TakenBack(ctx context.Context, epoch int) (bool, error) {
	if epoch == 1 {
		return false, nil
	}
	_, err := l.Belfry.Get(ctx, l.control, againID(epoch))
	if err != nil && !IsGone(err) {
		return false, fmt.Errorf("reading whether the jobs were taken back: %w", err)
	}
	return err != nil, nil
}

// DecideAgain writes down that entries come over again after an export took them back. Repeating it
// changes nothing.
func (l *Link) DecideAgain(ctx context.Context) error {
	_, err := l.Belfry.Put(ctx, l.control, nil, client.ID(againID(l.epoch)), client.In(epochDelay), client.Again())
	if err != nil {
		return fmt.Errorf("writing down that the entries come over again: %w", err)
	}
	return nil
}

func againID(epoch int) string { return "again:" + strconv.Itoa(epoch) }
