package doctor

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/findings"
)

const (
	// skewMax is how far the server's time may be from this machine's: half the clock bound, and the
	// second to which a Date is rounded.
	skewMax = 1250 * time.Millisecond
	// certificateSoon is how long before its end a certificate should have been replaced.
	certificateSoon = 14 * 24 * time.Hour
	// filesMost is the part of the files a process may have open that should not be in use.
	filesMost = 0.8
)

// Cluster notes what looks wrong in a cluster.
func (b *Bundle) Cluster(c *belfryv1.GetClusterResponse) {
	for _, f := range findings.Of(c) {
		if f.Advice {
			f.What = "advice: " + f.What
		}
		b.Find(f.What, f.Do)
	}
}

// Ready notes what /readyz?verbose says is wrong: what keeps the server from being ready, and what
// it warns of.
func (b *Bundle) Ready(status int, text string) {
	found := status == 200
	for line := range strings.Lines(text) {
		check, failed := strings.CutPrefix(strings.TrimSpace(line), "[-]")
		warning, warns := strings.CutPrefix(strings.TrimSpace(line), "[!]")
		if !failed && !warns {
			continue
		}
		if warns {
			check = warning
		}
		found = true
		do := "see 'belfry cluster status', and the log of the node"
		switch {
		case strings.HasPrefix(check, "disk"):
			do = "free space on the disk of the data directory, or give it more; other nodes lead until then, and a node that " +
				"is alone refuses puts"
		case strings.HasPrefix(check, "serving"):
			do = "nothing, if it was meant to stop"
		}
		if warns {
			b.Find("ready, with a "+check, do)
			continue
		}
		b.Find("not ready: "+check, do)
	}
	if !found { // it waits for its cluster, and says for whom
		b.Find("not ready: "+text,
			"what it waits for is in its words: that the others run, are reached at the addresses of --join, and have the "+
				"same --gossip-keys and --tls-ca")
	}
}

// Clock notes if the time that a server named is far from when it was asked and from when the
// answer was there.
func (b *Bundle) Clock(asked, answered, server time.Time) {
	if server.IsZero() {
		return
	}
	ahead := max(server.Sub(answered), 0)
	if behind := asked.Sub(server); behind > ahead {
		ahead = -behind
	}
	if ahead.Abs() > skewMax {
		b.Find(fmt.Sprintf("the server's clock is %v from this machine's", ahead.Round(time.Second)),
			"set the clocks of all nodes by NTP; a leader whose clock is more than 250ms from the others' leads no more")
	}
}

// Certificate notes when a certificate ends soon; whose says where it was seen.
func (b *Bundle) Certificate(whose string, cert *x509.Certificate, now time.Time) {
	left := cert.NotAfter.Sub(now)
	switch {
	case left <= 0:
		b.Find(fmt.Sprintf("the certificate of %s ended at %s", whose, cert.NotAfter.UTC().Format(time.RFC3339)),
			"make a new one with 'belfry cert', and send the node SIGHUP")
	case left < certificateSoon:
		b.Find(fmt.Sprintf("the certificate of %s ends at %s", whose, cert.NotAfter.UTC().Format(time.RFC3339)),
			"make a new one with 'belfry cert' before, and send the node SIGHUP")
	case now.Before(cert.NotBefore):
		b.Find(fmt.Sprintf("the certificate of %s begins at %s", whose, cert.NotBefore.UTC().Format(time.RFC3339)),
			"one of the two clocks is wrong")
	}
}

// Metrics notes what the metrics say is wrong.
func (b *Bundle) Metrics(text string) {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		var name string
		var value float64
		if n, _ := fmt.Sscanf(line, "%s %g", &name, &value); n == 2 {
			values[name] = value
		}
	}
	if most, open := values["process_max_fds"], values["process_open_fds"]; most > 0 && open > filesMost*most {
		b.Find(fmt.Sprintf("the server has %.0f of %.0f files open that it may have", open, most),
			"raise its limit of open files (LimitNOFILE= in the unit), and look who keeps so many connections")
	}
	if changed := values["belfry_peer_changed_total"]; changed > 0 {
		b.Find(fmt.Sprintf("%.0f connections between nodes were ended because bytes had been changed on the way", changed),
			"something between the nodes damages data: network cards, their offloading, proxies, memory")
	}
}
