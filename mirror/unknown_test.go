package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestRefusesUnknownQueue: an unknown name is an error, and nothing is paused, made or ended in it.
func TestRefusesUnknownQueue(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("own"), client.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	source := fromlmstfy.Options{Options: oneway.Options{Queue: "orders", Share: 1},
		Source: lmstfy.Queue{Namespace: "ns1", Name: "q1"}}
	for name, work := range map[string]func(context.Context) error{
		"rollback": func(ctx context.Context) error {
			_, err := mirror.Rollback(ctx, r, c, mirror.ExportOptions{RedisQueue: "typo", Queue: "orders",
				Format: redisson.New, Codec: redisson.Bytes, Share: 1})
			return err
		},
		"cutover": func(ctx context.Context) error {
			_, err := mirror.Cutover(ctx, r, c,
				mirror.CutoverOptions{ImportOptions: mirror.ImportOptions{RedisQueue: "typo", Share: 1}, Quiet: time.Millisecond})
			return err
		},
		"finalize": func(ctx context.Context) error {
			_, err := mirror.Finalize(ctx, r, c, mirror.FinalizeOptions{RedisQueue: "typo", Queue: "orders", Share: 1})
			return err
		},
		"finalize of another service": func(ctx context.Context) error {
			_, err := fromlmstfy.Finalize(ctx, r, c, source)
			return err
		},
		"inspect": func(ctx context.Context) error {
			_, err := mirror.Inspect(ctx, r, "typo")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			refused(t, r, c, func() error { err = work(t.Context()); return err })
			if !errors.Is(err, pair.ErrNoQueue) {
				t.Errorf("it was refused with %v", err)
			}
		})
	}
	// Jobs that were created here go to an empty queue of Redisson all the same, and from then on it
	// is known.
	if counts, err := mirror.Export(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "new", Queue: "orders",
		Format: redisson.New, Codec: redisson.Bytes, Share: 1}); err != nil || counts.Returned != 1 {
		t.Errorf("the export counted %+v, %v", counts, err)
	}
	if err := r.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := mirror.Finalize(t.Context(), r, c, mirror.FinalizeOptions{RedisQueue: "new", Queue: "orders",
		Share: 1}); err != nil {
		t.Error(err)
	}
}

// TestInspectOwnKeys: what the mirror alone knows of a queue is shown.
func TestInspectOwnKeys(t *testing.T) {
	r := redistest.Start(t).Client()
	if err := r.RPush(t.Context(), "belfry_orphans:{orders}", "an orphan").Err(); err != nil {
		t.Fatal(err)
	}
	if found, err := mirror.Inspect(t.Context(), r, "orders"); err != nil || found.Lost != 1 {
		t.Errorf("it found %+v, %v", found, err)
	}
}

// TestInspectNames warns of names that no queue of Belfry has, as Belfry itself sees it.
func TestInspectNames(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	for _, name := range []string{"orders", "shop/orders", "a.b_c:d-E9", "a/b/c", "/orders", "..", "shop/.",
		"my orders", "größe", "a{b}c", strings.Repeat("n", 256), strings.Repeat("n", 257)} {
		offer(t, r, name, "a")
		_, err := c.Admin().Queue(t.Context(), name)
		refuses := !errors.Is(err, client.Reason("QUEUE_NOT_FOUND"))
		found, err := mirror.Inspect(t.Context(), r, name)
		if err != nil {
			t.Fatal(err)
		}
		if warns := slices.ContainsFunc(found.Warnings, func(w string) bool {
			return strings.Contains(w,
				"--belfry-queue")
		}); warns != refuses {
			t.Errorf("%q: Belfry refuses it: %v; warnings %q", name, refuses, found.Warnings)
		}
	}
}

// TestInspectSample says so when it guesses codecs from a part of the entries.
func TestInspectSample(t *testing.T) {
	r := redistest.Start(t).Client()
	for _, more := range []int{2000, 1} {
		payloads := make([]string, more)
		for n := range payloads {
			payloads[n] = fmt.Sprintf("payload %d of %d", n, more)
		}
		offer(t, r, "orders", payloads...)
		found, err := mirror.Inspect(t.Context(), r, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if says := slices.ContainsFunc(found.Warnings, func(w string) bool {
			return strings.Contains(w,
				"codecs are guessed from 2000 of 2001 payloads")
		}); says != (more == 1) {
			t.Errorf("of %d entries it warned %q", found.New, found.Warnings)
		}
	}
}
