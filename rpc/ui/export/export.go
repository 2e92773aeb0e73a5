// Package export writes jobs as lines of JSON, in the form that the API has.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

const (
	// JobsMax is how many jobs an export has at most.
	JobsMax = 10_000
	// BytesMax is after how many bytes an export ends.
	BytesMax = 256 << 20
	// pageJobs is how many jobs are listed at one time, and atOnce how many are read.
	pageJobs = 1000
	atOnce   = 16
)

// Reader reads jobs, as the client of QueueService does.
type Reader interface {
	List(context.Context, *belfryv1.ListRequest) (*belfryv1.ListResponse, error)
	Get(context.Context, *belfryv1.GetRequest) (*belfryv1.GetResponse, error)
}

// Write writes the jobs of a selection in due order, one a line, with their bodies. A job that ended
// meanwhile is left out. If there are more jobs than an export has, the last line is an object with
// the field `cut`. After an error the lines are incomplete.
func Write(ctx context.Context, w io.Writer, from Reader, of selection.Selection) error {
	out, token := &lines{to: w}, ""
	for {
		list, err := from.List(ctx, of.List(pageJobs, token))
		if err != nil {
			return fmt.Errorf("listing jobs to export: %w", err)
		}
		if list.Stale {
			return errStale()
		}
		for some := range slices.Chunk(list.Jobs, atOnce) {
			jobs, err := read(ctx, from, some)
			if err != nil {
				return fmt.Errorf("reading jobs to export: %w", err)
			}
			for _, j := range jobs {
				if out.jobs == JobsMax || out.bytes >= BytesMax {
					return out.cut()
				}
				if err := out.write(j); err != nil {
					return err
				}
			}
		}
		if token = list.NextPageToken; token == "" {
			return nil
		}
	}
}

// errStale refuses what a replica answered. A page says how old that is; a file cannot.
func errStale() error {
	return connect.NewError(connect.CodeUnavailable,
		errors.New("a shard has no leader, and a download has no jobs of replicas, which may be old; try again"))
}

// lines writes jobs, and counts them.
type lines struct {
	to          io.Writer
	line        []byte
	jobs, bytes int
}

// write writes a job. It writes nothing for one that is gone.
func (l *lines) write(j *belfryv1.Job) (err error) {
	l.jobs++
	if j == nil {
		return nil
	}
	if l.line, err = codec.AppendJSON(l.line[:0], j.ProtoReflect()); err != nil {
		return fmt.Errorf("writing a job: %w", err)
	}
	l.line = append(l.line, '\n')
	l.bytes += len(l.line)
	_, err = l.to.Write(l.line)
	return err
}

// cut writes the line of an export that is not complete.
func (l *lines) cut() error {
	_, err := fmt.Fprintf(l.to, "{\"cut\":\"there are more jobs than the %d above; an export has at most %d jobs or "+
		"%d MiB\"}\n", l.jobs, JobsMax, BytesMax>>20)
	return err
}

// read reads a few jobs at one time. One that is gone is nil.
func read(ctx context.Context, from Reader, some []*belfryv1.Job) ([]*belfryv1.Job, error) {
	jobs, errs := make([]*belfryv1.Job, len(some)), make([]error, len(some))
	var reads sync.WaitGroup
	for i, j := range some {
		reads.Go(func() {
			res, err := from.Get(ctx, &belfryv1.GetRequest{Queue: j.Queue, Id: j.Id, Key: j.Key})
			switch jobs[i] = res.GetJob(); {
			case err == nil && res.Stale:
				errs[i] = errStale()
			case connect.CodeOf(err) != connect.CodeNotFound:
				errs[i] = err
			}
		})
	}
	reads.Wait()
	return jobs, errors.Join(errs...)
}
