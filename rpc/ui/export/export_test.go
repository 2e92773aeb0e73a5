package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// jobs is a queue with so many jobs, of which one is gone when it is read.
type jobs struct {
	all    int
	gone   string
	broken string
	// stale are the list and the job that a replica answers.
	staleList bool
	staleJob  string
	body      []byte
}

func (q *jobs) List(_ context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	from := len(req.PageToken)
	res := &belfryv1.ListResponse{Stale: q.staleList}
	for i := from; i < min(q.all, from+int(req.PageSize)); i++ {
		res.Jobs = append(res.Jobs, &belfryv1.Job{Queue: req.Queue, Id: fmt.Sprint("job-", i)})
	}
	if from+len(res.Jobs) < q.all {
		res.NextPageToken = strings.Repeat("x", from+len(res.Jobs))
	}
	return res, nil
}

func (q *jobs) Get(_ context.Context, req *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	switch req.Id {
	case q.gone:
		return nil, connect.NewError(connect.CodeNotFound, errors.New("gone"))
	case q.broken:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
	}
	job := &belfryv1.Job{Queue: req.Queue, Id: req.Id, Body: &belfryv1.Job_Data{Data: q.body}}
	return &belfryv1.GetResponse{Stale: req.Id == q.staleJob, Job: job}, nil
}

// lastLine counts lines and keeps the last one.
type lastLine struct {
	lines, bytes int
	text         string
}

func (l *lastLine) Write(line []byte) (int, error) {
	l.lines, l.bytes, l.text = l.lines+1, l.bytes+len(line), string(line)
	return len(line), nil
}

// TestWrite: jobs are written in their order, one that is gone is left out, and an export that is not
// complete says so, or fails.
func TestWrite(t *testing.T) {
	of := selection.Selection{Queue: "q"}
	var out strings.Builder
	if err := Write(t.Context(), &out, &jobs{all: 1234, gone: "job-7", body: []byte("a\nb")}, of); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1233 || !strings.Contains(lines[0], `"id":"job-0"`) || !strings.Contains(lines[0], `"text":"a\nb"`) ||
		!strings.Contains(lines[1232], `"id":"job-1233"`) || strings.Contains(out.String(), "cut") {
		t.Errorf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
	for what, q := range map[string]*jobs{
		"jobs": {all: JobsMax + 1}, "bytes": {all: 300, body: bytes.Repeat([]byte("x"), 1<<20)},
	} {
		last := &lastLine{}
		err := Write(t.Context(), last, q, of)
		if err != nil || !strings.Contains(last.text, `{"cut":"there are more jobs than the `) {
			t.Errorf("too many %s: %.100s, %v", what, last.text, err)
		}
		if what == "jobs" && last.lines != JobsMax+1 || last.bytes > BytesMax+2<<20 {
			t.Errorf("too many %s: %d lines and %d bytes", what, last.lines, last.bytes)
		}
	}
	out.Reset()
	if err := Write(t.Context(), &out, &jobs{all: JobsMax}, of); err != nil || strings.Contains(out.String(), "cut") {
		t.Errorf("as many jobs as there may be: %v", err)
	}
	if err := Write(t.Context(), &out, &jobs{all: 40, broken: "job-20"},
		of); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a job that cannot be read: %v", err)
	}
	for what, q := range map[string]*jobs{"a list": {all: 40, staleList: true}, "a job": {all: 40, staleJob: "job-20"}} {
		if err := Write(t.Context(), &out, q, of); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s of a replica is in a file, which cannot say so: %v", what, err)
		}
	}
}
