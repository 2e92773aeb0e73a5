package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// questionMax is how long one question to a server in trouble may take.
	questionMax = 5 * time.Second
	// pageMax bounds what is taken of a page.
	pageMax = 64 << 20
)

// server adds what the server answers; what it does not is missing.
func (e *examination) server(ctx context.Context) {
	status, text, err := e.page(ctx, e.conn.HTTP, e.conn.URL+"/readyz?verbose")
	if err != nil {
		e.bundle.Miss("the server at "+e.conn.InUse(), err)
		e.bundle.Find("the server at "+e.conn.InUse()+" does not answer: "+err.Error(),
			"see that it runs, and that --server and --tls-ca are right for it; if all is, its log says more")
		e.goroutines(ctx)
		return
	}
	e.bundle.Add("ready.txt", "what the node says of its readiness", fmt.Sprintf("status %d\n%s", status, text))
	e.bundle.Ready(status, text)
	e.cluster(ctx)
	e.queues(ctx)
	if status, text, err = e.page(ctx, e.conn.HTTP, e.conn.URL+"/metrics"); err != nil || status != http.StatusOK {
		e.bundle.Miss("metrics", cmp.Or(err, refusal(status, text)))
	} else {
		e.bundle.AddMetrics("metrics.txt", "the node's metrics", text)
		e.bundle.Metrics(text)
	}
	e.goroutines(ctx)
}

// page gets a page, and looks at the time and the certificate that come with it.
func (e *examination) page(ctx context.Context, caller *http.Client, url string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, min(questionMax, e.Timeout), cli.NoAnswer(min(questionMax, e.Timeout)))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	asked := e.Now()
	response, err := caller.Do(request)
	if err != nil {
		return 0, "", e.Describe(ctx, err)
	}
	defer response.Body.Close()
	if strings.HasSuffix(url, "/readyz?verbose") { // once is enough
		date, _ := http.ParseTime(response.Header.Get("Date")) // zero if there is none
		e.bundle.Clock(asked, e.Now(), date)
		if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
			e.bundle.Certificate("the server at "+e.conn.InUse(), response.TLS.PeerCertificates[0], e.Now())
		}
	}
	page, err := io.ReadAll(io.LimitReader(response.Body, pageMax))
	if caller == e.conn.HTTP && !cli.ServedHere(response) {
		err = e.Describe(ctx, &cli.ForeignResponse{Status: response.Status})
	}
	return response.StatusCode, string(page), err
}

// refusal returns what a page says that is not the one that was asked for.
func refusal(status int, text string) error {
	var fault struct{ Message string }
	if json.Unmarshal([]byte(text), &fault) != nil || fault.Message == "" {
		return fmt.Errorf("the answer has status %d", status)
	}
	return fmt.Errorf("the answer has status %d: %s", status, fault.Message)
}

// cluster adds the state of the cluster.
func (e *examination) cluster(ctx context.Context) {
	var c *belfryv1.GetClusterResponse
	err := e.question(ctx, func(ctx context.Context) (err error) {
		c, err = e.conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		return err
	})
	if err != nil {
		e.bundle.Miss("the cluster", errors.New(cli.Explain(err)))
		if cli.ExitCode(ctx, err) == cli.CodeForbidden {
			e.bundle.Find("the server tells this command little: "+cli.Explain(err),
				"name a token that allows view:* with --token-file; whoever has one for admin makes it with 'belfry token create "+
					"--scope view:*'")
		}
		return
	}
	e.message("cluster.json", "the cluster's nodes, shards and moves, with names and addresses of nodes", c)
	e.bundle.Cluster(c)
}

// queues adds the queues, their settings and figures.
func (e *examination) queues(ctx context.Context) {
	var all *belfryv1.ListQueuesResponse
	err := e.question(ctx, func(ctx context.Context) (err error) {
		all, err = cli.ListQueues(ctx, e.conn, &belfryv1.ListQueuesRequest{Stale: true})
		return err
	})
	if err != nil {
		e.bundle.Miss("the queues", errors.New(cli.Explain(err)))
		return
	}
	about := "the queues with their settings and figures, their names hashed"
	if e.flags.withNames {
		about = "the queues with their names, settings and figures"
	}
	for _, q := range all.Queues {
		q.Name = e.names.Of(q.Name)
	}
	e.message("queues.json", about, all)
}

// question asks a server in trouble one question, for a short time.
func (e *examination) question(ctx context.Context, ask func(context.Context) error) error {
	return e.WithinLimit(ctx, min(questionMax, e.Timeout), ask)
}

// message adds an answer.
func (e *examination) message(name, about string, m proto.Message) {
	e.bundle.Add(name, about, protojson.MarshalOptions{Multiline: true}.Format(m)+"\n")
}

// goroutines adds what the server's goroutines do, if it listens for that. The names of functions
// and the lines are all there is in it.
func (e *examination) goroutines(ctx context.Context) {
	if e.flags.debug == "" {
		e.bundle.Miss("goroutines", errors.New("no --debug-addr is given"))
		return
	}
	plain := &http.Client{Transport: &http.Transport{}} // this port knows of no tokens, and gets none
	status, text, err := e.page(ctx, plain, "http://"+e.flags.debug+"/debug/pprof/goroutine?debug=1")
	if err != nil || status != http.StatusOK {
		e.bundle.Miss("goroutines at "+e.flags.debug, cmp.Or(err, refusal(status, text)))
		return
	}
	e.bundle.Add("goroutines.txt", "what the server's goroutines do: functions and lines", text)
}

// certificate looks at the certificates that the settings name.
func (e *examination) certificate(serve *cobra.Command) {
	for _, name := range []string{"tls-cert", "tls-client-cert", "tls-ca"} {
		flag := serve.Flags().Lookup(name)
		if flag == nil || flag.Value.String() == "" {
			continue
		}
		text, err := os.ReadFile(flag.Value.String())
		if err != nil {
			e.bundle.Miss("--"+name, err)
			continue
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
				e.bundle.Certificate("--"+name+", "+cert.Subject.CommonName, cert, e.Now())
			}
		}
	}
}
