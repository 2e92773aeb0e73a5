package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/client"
)

// epochDelay keeps the job of an epoch from ever ringing.
const epochDelay = 90 * 365 * 24 * time.Hour

// epochRecord is the body of an epoch's job, for people who look.
type epochRecord struct {
	RedisQueue string `json:"redisQueue"`
	Queue      string `json:"queue"`
	Epoch      int    `json:"epoch"`
}

// currentEpoch returns the number of the epoch that a control queue is in: 1 at first.
func currentEpoch(ctx context.Context, c *client.Client, control string) (int, error) {
	for n := 2; ; n++ {
		_, err := c.Get(ctx, control, epochID(n))
		switch {
		case errors.Is(err, client.ErrJobNotFound), errors.Is(err, client.Reason("QUEUE_NOT_FOUND")):
			return n - 1, nil
		case err != nil:
			return 0, fmt.Errorf("reading how often the queue was brought over: %w", err)
		}
	}
}

// beginEpoch writes down that an epoch has begun. Repeating it changes nothing.
func beginEpoch(ctx context.Context, c *client.Client, control string, record epochRecord) error {
	body, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("writing down an epoch: %w", err)
	}
	_, err = c.Put(ctx, control, body, client.ID(epochID(record.Epoch)), client.In(epochDelay))
	if err != nil {
		return fmt.Errorf("writing down that epoch %d has begun: %w", record.Epoch, err)
	}
	return nil
}

func epochID(n int) string { return "epoch:" + strconv.Itoa(n) }
