package browsertest

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"github.com/belfrydb/belfry/client"
)

var takePictures = flag.Bool("pictures", false, "take the pictures of docs/dashboard; else they are checked")

const (
	picturesDir = "../../../docs/dashboard"
	// pictureWidth is the width of a picture in pixels, and pictureBytesMax bounds its file.
	pictureWidth     = 1440
	pictureHeightMax = 900
	pictureBytesMax  = 150 << 10
	// colorsMax is how many colors a picture has, as bytes number them.
	colorsMax = 256
)

// pictured are the pages of the pictures, by the name of their files.
func pictured() map[string]string {
	return map[string]string{
		"overview":     "",
		"queue":        "queue?queue=orders%2Fcancel-unpaid",
		"dead-letters": "dead",
	}
}

// TestPictures: each picture of the dashboard is as wide as the others, small, and shown on the page
// about it. With -pictures it takes them first.
func TestPictures(t *testing.T) {
	if *takePictures {
		takeAll(t)
	}
	text, err := os.ReadFile("../../../docs/dashboard.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range pictured() {
		var last []byte
		for _, theme := range []string{"light", "dark"} {
			file := name + "-" + theme + ".png"
			content, err := os.ReadFile(filepath.Join(picturesDir, file))
			if bytes.Equal(content, last) {
				t.Errorf("%s is the picture of both themes", file)
			}
			last = content
			if err != nil {
				t.Errorf("%v; make dashboard-pictures takes it", err)
				continue
			}
			if len(content) > pictureBytesMax {
				t.Errorf("%s has %d bytes, at most %d", file, len(content), pictureBytesMax)
			}
			if shape, err := png.DecodeConfig(bytes.NewReader(content)); err != nil || shape.Width != pictureWidth {
				t.Errorf("%s is %d pixels wide, want %d: %v", file, shape.Width, pictureWidth, err)
			}
			if !strings.Contains(string(text), "](dashboard/"+file+")") {
				t.Errorf("docs/dashboard.md does not show dashboard/%s", file)
			}
		}
	}
}

// takeAll takes all pictures of a server with made-up data.
func takeAll(t *testing.T) {
	s := startOpen(t)
	open := open(startBrowser(t), t, s)
	shop(t, s.client)
	if err := os.MkdirAll(picturesDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range pictured() {
		for _, theme := range []string{"light", "dark"} {
			open.settle(theme, "3600")
			open.visit(path)
			if err := os.WriteFile(filepath.Join(picturesDir, name+"-"+theme+".png"), open.picture(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// picture returns the page from its head to its foot, which names the version, as a picture of few
// colors.
func (b *tab) picture() []byte {
	b.t.Helper()
	foot := ask[float64](b, "document.querySelector('footer').getBoundingClientRect().top")
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Clip: &page.Viewport{Width: pictureWidth, Height: min(foot, pictureHeightMax), Scale: 1}})
	full, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, withPalette(full)); err != nil {
		b.t.Fatal(err)
	}
	return out.Bytes()
}

// withPalette returns a picture with the most frequent of its colors that are far enough apart; each
// other pixel gets the nearest of them.
func withPalette(full image.Image) *image.Paletted {
	counts := map[color.Color]int{}
	area := full.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	palette := color.Palette{}
	for _, c := range all {
		if len(palette) < colorsMax && (len(palette) == 0 || apart(c, palette[palette.Index(c)]) > shadeMax) {
			palette = append(palette, c)
		}
	}
	nearest := map[color.Color]uint8{}
	for _, c := range all {
		nearest[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(area, palette)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[full.At(x, y)])
		}
	}
	return out
}

// shadeMax is how far apart two colors may be to share a place in a palette, of 255.
const shadeMax = 3

// apart returns how far apart two colors are in the one of red, green and blue in which they differ
// most, of 255.
func apart(a, b color.Color) int {
	r1, g1, b1, _ := a.RGBA()
	r2, g2, b2, _ := b.RGBA()
	most := 0
	for _, pair := range [][2]uint32{{r1, r2}, {g1, g2}, {b1, b2}} {
		most = max(most, int(max(pair[0], pair[1])-min(pair[0], pair[1]))>>8)
	}
	return most
}

// shopQueue is a queue of a made-up shop. Its jobs are due within the times, as many within each.
// Consumers have acked done jobs and hold held.
type shopQueue struct {
	name       string
	jobs       int
	within     []time.Duration
	ready      int
	done, held int
	failures   []string
	paused     bool
}

func shopQueues() []shopQueue {
	const minute, day = time.Minute, 24 * time.Hour
	return []shopQueue{
		{name: "orders/cancel-unpaid", jobs: 5200, within: []time.Duration{30 * minute, 50 * minute, 20 * time.Hour, day,
			7 * day, 14 * day, 28 * day}, done: 384, held: 9},
		{name: "orders/confirm", jobs: 140, within: []time.Duration{time.Hour}, done: 300},
		{name: "orders/ship-reminder", jobs: 2600, within: []time.Duration{3 * day}},
		{name: "orders/review-request", jobs: 5300, within: []time.Duration{21 * day}},
		{name: "mail/retry", jobs: 380, within: []time.Duration{6 * time.Hour}, ready: 2, done: 131, held: 4,
			failures: []string{"550 5.1.1 no such mailbox", "550 5.1.1 no such mailbox", "550 5.1.1 no such mailbox",
				"421 4.7.0 greylisted for 300 s", "421 4.7.0 greylisted for 600 s"}},
		{name: "mail/digest", jobs: 8100, within: []time.Duration{7 * day}},
		{name: "billing/dunning", jobs: 960, within: []time.Duration{28 * day}, done: 40},
		{name: "billing/invoice", jobs: 75, within: []time.Duration{12 * time.Hour}, done: 110, failures: []string{
			"connecting to 10.4.0.17:5432: timeout after 2000 ms", "connecting to 10.4.0.17:5432: timeout after 2001 ms",
			"connecting to 10.4.0.18:5432: timeout after 2000 ms", "invoice 481516: no VAT rate for the country XK"}},
		{name: "stock/release", jobs: 1900, within: []time.Duration{20 * minute}, done: 200, held: 2},
		{name: "stock/recount", jobs: 48, within: []time.Duration{5 * day}},
		{name: "webhooks/deliver", jobs: 620, within: []time.Duration{2 * time.Hour}, ready: 24, done: 276, held: 16,
			failures: slices.Concat(
				slices.Repeat([]string{"POST https://hooks.example/belfry: 503 after 3 tries"}, 14),
				slices.Repeat([]string{"POST https://shop.example/in: certificate has expired"}, 6))},
		{name: "search/reindex", jobs: 30, within: []time.Duration{time.Hour}, ready: 120, paused: true},
	}
}

// shop fills a server with the jobs of a shop, whose times are spread as by chance.
func shop(t *testing.T, c *client.Client) {
	t.Helper()
	chance := rand.New(rand.NewPCG(7, 11))
	for _, q := range shopQueues() {
		var dead []death
		for n, failure := range q.failures {
			dead = append(dead, death{fmt.Sprintf("order-%d", 481_516+37*n), failure,
				time.Duration(3+5*n) * time.Minute})
		}
		die(t, c, q.name, dead...)
		var puts []client.Put
		for n := range q.jobs {
			puts = append(puts, q.put(time.Minute+time.Duration(chance.Float64()*float64(q.within[n%len(q.within)])), n))
		}
		for n := range q.ready + q.done + q.held {
			puts = append(puts, q.put(0, q.jobs+n))
		}
		for part := range slices.Chunk(puts, 1000) {
			must[[]client.PutResult](t)(c.PutBatch(t.Context(), part))
		}
		for range q.done {
			if err := reserve(t, c, q.name).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range q.held {
			reserve(t, c, q.name)
		}
		if q.paused {
			pause(t, c, q.name)
		}
	}
}

// put is a job of the shop.
func (q *shopQueue) put(delay time.Duration, n int) client.Put {
	return client.Put{Queue: q.name, Body: fmt.Appendf(nil, `{"order":%d}`, 480_000+n),
		Options: []client.PutOption{client.In(delay)}}
}
