package keys

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

const (
	// scanMax and scanTime bound what one call looks at in each shard.
	scanMax  = 1_000_000
	scanTime = time.Second
)

// ListKeys implements AdminService. The shards do not sort their keys: it looks at all of them, a part
// at a time, and keeps the first ones of the page.
func (s *Service) ListKeys(ctx context.Context, req *belfryv1.ListKeysRequest) (*belfryv1.ListKeysResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	l := &list{
		query: fsm.KeysQuery{
			Queue: c.Queue("queue", req.GetQueue()), Prefix: c.KeyPrefix("prefix", req.GetPrefix()), Scan: fsm.KeysScanMax,
		},
		order: req.GetOrder(), most: c.Page("pageSize", req.GetPageSize()), now: s.rules.Now,
		from: shardcall.Reader{Router: s.router, Stale: req.GetStale()},
	}
	if req.GetState() != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		l.query.State = held(c, "state", req.GetState())
	}
	if l.order > belfryv1.KeyOrder_KEY_ORDER_NAME || l.order < 0 {
		c.Fail(fault.Invalid("order", "want one of BACKLOG, NAME, not %s", codec.QuotedEnum(l.order)))
	}
	l.readToken(c, req.GetPageToken())
	if c.Err != nil {
		return nil, c.Err
	}
	if err := l.from.Learn(ctx, l.query.Queue); err != nil {
		return nil, err
	}
	return l.read(ctx, s.router.Shards(l.query.Queue))
}

// list is a ListKeys in progress.
type list struct {
	query fsm.KeysQuery
	order belfryv1.KeyOrder
	most  int
	// after is the last key of the page before; its name is empty on the first page.
	after fsm.Key
	from  shardcall.Reader
	now   func() time.Time
}

// read reads a page.
func (l *list) read(ctx context.Context, shards []uint32) (*belfryv1.ListKeysResponse, error) {
	known, _, err := l.from.Read(ctx, shards[0], &fsm.QueueQuery{Queue: l.query.Queue})
	if err != nil {
		return nil, l.from.FaultAt(shards[0], err)
	}
	if len(known.Queues) == 0 {
		return nil, fault.New(belfryv1.Reason_REASON_QUEUE_NOT_FOUND)
	}
	readings, witnesses, err := l.from.AskAll(ctx, shards, func(ctx context.Context, i int) (fsm.Reading, node.Witness,
		error) {
		return l.readShard(ctx, shards[i])
	})
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ListKeysResponse{Witnesses: witnesses, AsOf: shardcall.AsOf(readings...), Stale: l.from.Stale}
	var all []fsm.Key
	for i := range readings {
		r := &readings[i]
		all = append(all, r.Keys...)
		out.Searched += r.Scanned
		out.StoppedEarly = out.StoppedEarly || r.Next != 0
	}
	all = l.best(all)
	for i := range all[:min(len(all), l.most)] {
		out.Keys = append(out.Keys, wireKey(&all[i]))
	}
	if len(all) > l.most {
		out.NextPageToken = l.token(&all[l.most-1])
	}
	return out, nil
}

// readShard returns the best keys of a shard, one more than a page has, and how many keys it looked at.
// Next is not 0 if it stopped at a bound. An index of keys means something to one replica only, so a
// new leader is asked from the beginning, and replicas, of which any may answer, are asked once.
func (l *list) readShard(ctx context.Context, shard uint32) (sum fsm.Reading, w node.Witness, err error) {
	began, query := l.now(), l.query
	var keys []fsm.Key
	for scanned := uint64(0); ; {
		r, at, err := l.from.Read(ctx, shard, &query)
		if err != nil {
			return fsm.Reading{}, w, err
		}
		scanned += r.Scanned
		if query.From != 0 && at.Term != w.Term {
			keys, query.From = nil, 0
			w = at
			continue
		}
		w = at
		keys = l.best(append(keys, r.Keys...))
		if r.Next == 0 || l.from.Stale || scanned >= scanMax || l.now().Sub(began) >= scanTime {
			sum, sum.Keys, sum.Scanned = r, keys, scanned
			return sum, w, nil
		}
		query.From = r.Next
	}
}

// best returns the first keys after the page before, one more than a page has.
func (l *list) best(keys []fsm.Key) []fsm.Key {
	if l.after.Name != "" {
		keys = slices.DeleteFunc(keys, func(k fsm.Key) bool { return l.compare(k, l.after) <= 0 })
	}
	slices.SortFunc(keys, l.compare)
	return slices.Clone(keys[:min(len(keys), l.most+1)])
}

// compare is the order of the list.
func (l *list) compare(a, b fsm.Key) int {
	if l.order == belfryv1.KeyOrder_KEY_ORDER_NAME {
		return strings.Compare(a.Name, b.Name)
	}
	return cmp.Or(cmp.Compare(b.Ready, a.Ready), strings.Compare(a.Name, b.Name))
}

// A page token is a checksum of the query and of the rest, the READY jobs of the last key, and its
// name.
func (l *list) token(last *fsm.Key) string {
	b := append(binary.LittleEndian.AppendUint32(nil, last.Ready), last.Name...)
	return base64.RawURLEncoding.EncodeToString(append(binary.LittleEndian.AppendUint32(nil, l.sum(b)), b...))
}

func (l *list) sum(rest []byte) uint32 {
	b := append([]byte(l.query.Queue+"\x00"+l.query.Prefix+"\x00"), byte(l.query.State), byte(l.order))
	return crc32.Checksum(append(b, rest...), crc32.MakeTable(crc32.Castagnoli))
}

func (l *list) readToken(c *check.Request, token string) {
	if token == "" {
		return
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= 8 || binary.LittleEndian.Uint32(b) != l.sum(b[4:]) {
		c.Fail(fault.Invalid("pageToken",
			"not a token of this list: pass on nextPageToken and keep the other fields as they were"))
		return
	}
	l.after = fsm.Key{Ready: binary.LittleEndian.Uint32(b[4:]), Name: string(b[8:])}
}

// wireKey converts a key.
func wireKey(k *fsm.Key) *belfryv1.Key {
	return &belfryv1.Key{
		Key: k.Name, Paused: k.Paused, Blocked: blocked(k.Blocked), NextTokenAt: wire.CeilTime(k.NextToken),
		NextDueAt: wire.CeilTime(k.HeadDue), Counts: &belfryv1.JobCounts{
			Delayed: k.Delayed, Ready: k.Ready, Reserved: k.Reserved, Dead: k.Dead,
		},
	}
}

func blocked(b fsm.KeyBlock) belfryv1.KeyBlock {
	switch b {
	case fsm.NotBlocked:
		return belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED
	case fsm.BlockedByPause:
		return belfryv1.KeyBlock_KEY_BLOCK_PAUSED
	case fsm.BlockedByDead:
		return belfryv1.KeyBlock_KEY_BLOCK_DEAD
	case fsm.BlockedByLimit:
		return belfryv1.KeyBlock_KEY_BLOCK_LIMIT
	case fsm.BlockedByOrder:
		return belfryv1.KeyBlock_KEY_BLOCK_ORDER
	case fsm.BlockedByRate:
		return belfryv1.KeyBlock_KEY_BLOCK_RATE
	default:
		return belfryv1.KeyBlock_KEY_BLOCK_UNSPECIFIED
	}
}
