package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// ErrKeyRate is the error of a text that is no rate.
var ErrKeyRate = errors.New(`want COUNT/PERIOD, such as "10/1m", or 0 for no limit`)

// ParseKeyRate reads a rate as people write it: "10/1m", or "0" for no limit. It does not check the
// ranges, and leaves burst as it is.
func ParseKeyRate(text string) (*belfryv1.KeyRate, error) {
	number, period, ok := strings.Cut(text, "/")
	count, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if err != nil || !ok && count != 0 {
		return nil, ErrKeyRate
	}
	if !ok {
		return &belfryv1.KeyRate{}, nil
	}
	per, err := ParseDuration(strings.TrimSpace(period))
	if err != nil {
		return nil, fmt.Errorf("%w; the period %q: %w", ErrKeyRate, period, err)
	}
	return &belfryv1.KeyRate{Count: uint32(count), Per: durationpb.New(per)}, nil
}

// FormatKeyRate writes a rate without its burst as ParseKeyRate reads it.
func FormatKeyRate(r *belfryv1.KeyRate) string {
	if r.GetCount() == 0 {
		return "0"
	}
	return fmt.Sprintf("%d/%s", r.GetCount(), FormatDuration(r.GetPer().AsDuration()))
}
