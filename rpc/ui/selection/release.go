package selection

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// Holder is a consumer whose jobs can be released.
type Holder struct {
	// Client is the consumer as its jobs have it; empty if it is not known. It holds so many Jobs, and
	// reserved one last at Latest.
	Client string
	Jobs   uint64
	Latest *timestamppb.Timestamp
	// Box has more attributes of the box that is to be ticked.
	Box g.Node
}

// HolderID is the id of the row of a consumer, whose name can be any text.
func HolderID(client string) string {
	sum := sha256.Sum256([]byte(client))
	return "consumer-" + hex.EncodeToString(sum[:8])
}

// Draw draws the form. It may be sent twice: it releases only what was held when it was drawn. Jobs of
// which it is not known who holds them have none: they may be of several consumers.
func (o *Holder) Draw() g.Node {
	if o.Client == "" || o.Latest == nil {
		return g.Text("their leases end by themselves")
	}
	// What the consumer reserves after the page was read is not shown there, so it is not released.
	// Times of jobs are rounded down to the millisecond.
	before := o.Latest.AsTime().Add(time.Millisecond).Format(time.RFC3339Nano)
	return markup.Acting("release-leases", []string{"client", o.Client, "max", strconv.FormatUint(o.Jobs, 10),
		"before", before},
		h.Label(h.Input(o.Box, h.Type("checkbox"), h.Name("confirm"), h.Value("yes"), h.Required()), g.Text(" it is gone ")),
		markup.Button("Release "+Jobs(o.Jobs)))
}

// ReadRelease reads the form of a Holder: the request, but for its queue, and how many jobs may be
// released, at most so many. The error names the field.
func ReadRelease(in form.Values, most uint64) (*belfryv1.ReleaseLeasesRequest, uint64, error) {
	if in("confirm") != "yes" {
		return nil, 0, form.Errorf("confirm", "tick the box to release the jobs: if the consumer is not gone, another one "+
			"works on them at the same time; nothing was done")
	}
	jobs, err := form.Count("max", in("max"), most)
	if err != nil {
		return nil, 0, err
	}
	before, err := form.Time("before", in("before"), time.UTC)
	if err != nil {
		return nil, 0, err
	}
	return &belfryv1.ReleaseLeasesRequest{Client: in("client"), ReservedBefore: before}, jobs, nil
}
