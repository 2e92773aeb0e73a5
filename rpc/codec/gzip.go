package codec

import (
	"compress/gzip"
	"io"
	"strconv"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// gunzipSlots is how many requests are decompressed at one time. It is work for the processor only,
// since the compressed bytes are there already; more at once would only hold more memory.
const gunzipSlots = 4

// gunzip decompresses a request up to a limit and stops there. Connect's own would go on to the end
// of the stream to report its size, which is minutes of work for a bomb of a few kilobytes.
type gunzip struct {
	reader   gzip.Reader
	bytesMax int
	read     int
	slots    chan struct{}
	holding  bool
}

// NewGunzip returns the constructor that Connect pools.
func NewGunzip(bytesMax int) func() connect.Decompressor {
	slots := make(chan struct{}, gunzipSlots)
	return func() connect.Decompressor { return &gunzip{bytesMax: bytesMax, slots: slots} }
}

// Read implements io.Reader. The limit is reported as an error of the contract, which Connect
// passes on.
func (g *gunzip) Read(p []byte) (int, error) {
	if !g.holding {
		g.slots <- struct{}{}
		g.holding = true
	}
	n, err := g.reader.Read(p)
	if g.read += n; g.read > g.bytesMax {
		f := &fault.Error{
			Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: "request",
			Message: "request: more than " + strconv.Itoa(g.bytesMax) + " bytes when decompressed, which is the limit",
		}
		return n, f.Wire()
	}
	return n, err
}

// Close implements io.Closer.
func (g *gunzip) Close() error {
	if g.holding {
		g.holding = false
		<-g.slots
	}
	return g.reader.Close()
}

// Reset implements connect.Decompressor.
func (g *gunzip) Reset(r io.Reader) error {
	g.read = 0
	return g.reader.Reset(r)
}

// NewGzip returns a compressor for answers.
func NewGzip() connect.Compressor { return gzip.NewWriter(io.Discard) }
