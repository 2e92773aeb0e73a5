package client

import (
	"context"
	"encoding/xml"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

type order struct {
	Number int
	Items  []string
}

func TestTypedQueue(t *testing.T) {
	plain := func(c *Client) *Queue[order] { return NewQueue[order](c, "orders") }
	for name, queue := range map[string]func(c *Client) *Queue[order]{
		"json": plain,
		"xml": func(c *Client) *Queue[order] {
			return plain(c).WithCodec(
				func(o order) ([]byte, error) { return xml.Marshal(o) },
				func(body []byte, o *order) error { return xml.Unmarshal(body, o) },
			)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, newPipeNet(), nil, NewFake())
				orders := queue(c)
				want := order{Number: 42, Items: []string{"a", "b"}}
				put, err := orders.Put(t.Context(), want, In(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				read, err := orders.Get(t.Context(), put.ID)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, read.Value); diff != "" {
					t.Errorf("read (-want +got):\n%s", diff)
				}
				ctx, stop := context.WithCancel(t.Context())
				err = orders.Work(ctx, Worker{}, func(_ context.Context, job *JobOf[order]) error {
					if diff := cmp.Diff(want, job.Value); diff != "" || job.ID != put.ID {
						t.Errorf("job %s (-want +got):\n%s", job.ID, diff)
					}
					stop()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestUndecodableJobIsRetried: it is reported, and tried again as any failed attempt is.
func TestUndecodableJobIsRetried(t *testing.T) {
	inBench(t, func(b *bench) {
		t := b.t
		b.put("{")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		queue := NewQueue[order](b.client, "q")
		heard := 0
		worker := Worker{Concurrency: 1, OnError: func(job *Job, err error) {
			if heard++; heard == 2 {
				stop()
			}
			if job.ID != "{" || !strings.Contains(err.Error(), "decoding job { of queue q") {
				t.Errorf("OnError heard of job %s: %v", job.ID, err)
			}
		}}
		defer func() {
			if heard != 2 {
				t.Errorf("OnError was called %d times, want 2", heard)
			}
		}()
		err := queue.Work(ctx, worker, func(context.Context, *JobOf[order]) error {
			t.Error("the handler saw a job that cannot be decoded")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		b.want("{", jobState{"DELAYED", 2, 0, "decoding job { of queue q: unexpected end of JSON input"})
		if _, err := queue.Get(t.Context(), "{"); err == nil || !strings.Contains(err.Error(), "decoding job {") {
			t.Errorf("get: %v", err)
		}
	})
}

func TestUnencodableValueIsNotSent(t *testing.T) {
	c := start(t, newPipeNet(), nil, nil)
	_, err := NewQueue[func()](c, "q").Put(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "encoding a job for queue q") {
		t.Errorf("error %v", err)
	}
	if errors.Is(err, ErrUnknownOutcome) {
		t.Error("a put that was not sent has an unknown outcome")
	}
}
