package mirror

import (
	"context"
	"strconv"

	"github.com/belfrydb/belfry/mirror/redisson"
)

// What a Finding lists: how many entries of one key, and how many bytes of each member.
const (
	ListedMax   = 1000
	ListedBytes = 48
	// WholeBytes is how many of each member it has as they are.
	WholeBytes = 1 << 10
)

// listedPage is how many are read at a time: what is set aside may be long.
const listedPage = 16

// A Listed is an entry that Belfry cannot take, one that was set aside, or a place of the list that
// is never delivered.
type Listed struct {
	// Key is where it is.
	Key string `json:"key"`
	// Score is that of Redis; empty if it has none.
	Score string `json:"score,omitempty"`
	// Bytes is how long the member is, Member its first [ListedBytes] as text of ASCII: what is no
	// printable letter is written as in Go, such as \x00.
	Bytes  int    `json:"bytes"`
	Member string `json:"member"`
	// Whole is the member itself, or its first [WholeBytes]; base64 in JSON.
	Whole []byte `json:"whole"`
	// Why says what is wrong with it.
	Why string `json:"why"`
}

// list notes an entry of a key, unless enough of that key are.
func (s *survey) list(key string, e entry, why string) {
	if s.listed[key] == ListedMax {
		return
	}
	s.listed[key]++
	shown := strconv.QuoteToASCII(e.member[:min(len(e.member), ListedBytes)])
	s.found.Listed = append(s.found.Listed, Listed{Key: key, Score: e.score, Bytes: len(e.member),
		Member: shown[1 : len(shown)-1], Whole: []byte(e.member[:min(len(e.member), WholeBytes)]), Why: why})
}

const (
	whyOrphan  = "it is in the list only, without a due time"
	whyRefused = "Belfry refused it when it was put"
)

// quarantine lists what an import has set aside.
func (s *survey) quarantine(ctx context.Context) error {
	for cursor := uint64(0); s.found.Aside > 0 && s.listed[s.keys.aside] < ListedMax; {
		page, next, err := s.redis.ZScan(ctx, s.keys.aside, cursor, "", listedPage).Result()
		if err != nil {
			return err
		}
		for n := 0; n+1 < len(page); n += 2 {
			one, why := entry{page[n], page[n+1]}, whyRefused
			if _, _, err := one.read(redisson.New, s.now); err != nil {
				why = err.Error()
			}
			s.list(s.keys.aside, one, why)
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for at := int64(0); at < min(s.found.Lost, ListedMax); at += listedPage {
		members, err := s.redis.LRange(ctx, s.keys.orphans, at, at+listedPage-1).Result()
		if err != nil {
			return err
		}
		for _, member := range members {
			s.list(s.keys.orphans, entry{member: member}, whyOrphan)
		}
	}
	return nil
}
