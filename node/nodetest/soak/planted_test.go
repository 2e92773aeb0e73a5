//go:build !race

// What is tested here is the judge, which works when the schedule is over. The race detector
// watches the same schedules in TestSoak.

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	// plantedSeeds is how many schedules may pass before a planted mistake is noticed.
	plantedSeeds  = 30
	plantedLength = time.Minute
)

// A mistake that is planted somewhere in the cluster must be noticed.
func TestPlantedMistakesAreNoticed(t *testing.T) {
	for name, planted := range mistakes() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(plantedSeeds) {
				report := inBubble(t, Options{Seed: seed, Length: plantedLength, plan: planted})
				if len(report.Violations) > 0 {
					t.Logf("noticed by seed %d: %s", seed, report.Violations[0])
					return
				}
			}
			t.Errorf("not noticed in %d schedules", plantedSeeds)
		})
	}
}

// mistakes returns the mistakes by name, with the faults that bring them to light.
func mistakes() map[string]func(*plan) {
	return map[string]func(*plan){
		"entries are acknowledged before they are synced": lyingDisk(".wal", "power cut of all", "leadership moved"),
		"term and vote are not synced":                    lyingDisk("/stable", "power cut of one", "leader isolated"),
		"snapshots are not synced":                        lyingDisk(".snap", "power cut of one", "snapshots forced"),
		"a leader with a wrong clock stamps": func(p *plan) {
			p.only("clocks set", "leadership moved")
			p.skew = 5 * time.Second
		},
		"an unknown outcome is called a refusal": withDoor(func(d *badDoor) {
			d.denies = true
		}, "leader isolated", "leader killed"),
		"an ack with an old fence is taken": withDoor(func(d *badDoor) { d.takesOldFences = true }, "leadership moved"),
		"nominal times are left out": func(p *plan) {
			p.only("leadership moved")
			p.keyed = true
			p.calendar = func(s *fsm.Schedule) (schedules.Calendar, error) { return calendar{2 * s.Spec.Every}, nil }
		},
		"a job is handed out early": withDoor(func(d *badDoor) { d.hurries = true }, "leadership moved"),
		"a request is repeated under a new id": withDoor(func(d *badDoor) {
			d.forgetsIDs = true
		}, "leader isolated", "leadership moved"),
		"an answer comes before the commit": withDoor(func(d *badDoor) {
			d.promises = true
		}, "leader isolated", "leader killed"),
		"a waiting consumer is woken late": withDoor(func(d *badDoor) { d.dozes = true }, "leadership moved"),
		"a replica applies something else": func(p *plan) {
			p.only("leadership moved")
			p.mistake = func(owner string, token uint64) uint64 {
				if owner == "n2" && token%8 == 0 {
					token++
				}
				return token
			}
		},
		"a snapshot is not the whole state": func(p *plan) {
			p.only("node killed")
			p.forgetful = true
		},
	}
}

// only draws the plan's faults anew from a few kinds.
func (p *plan) only(names ...string) {
	var chosen []*kind
	for _, k := range kinds() {
		for _, name := range names {
			if k.name == name {
				chosen = append(chosen, k)
			}
		}
	}
	p.nodes, p.clients, p.clientPauseMax = 3, 6, time.Second
	p.draw(rand.New(rand.NewPCG(uint64(len(p.faults)), uint64(p.clients))), chosen)
}

// lyingDisk plants a disk that acknowledges the syncs of some files and does nothing.
func lyingDisk(files string, faults ...string) func(*plan) {
	return func(p *plan) {
		p.only(faults...)
		p.wrapDisk = func(d *diskfault.Disk) disk.FS { return liar{d, files} }
	}
}

type liar struct {
	*diskfault.Disk
	files string
}

// OpenFile implements disk.FS.
func (l liar) OpenFile(name string, flag int) (disk.File, error) {
	f, err := l.Disk.OpenFile(name, flag)
	if err != nil || !strings.Contains(name, l.files) {
		return f, err
	}
	return lyingFile{f}, nil
}

// SyncDir implements disk.FS.
func (l liar) SyncDir(name string) error {
	if l.files == "/stable" && strings.HasPrefix(path.Base(path.Dir(name)), "shards") && rand.IntN(2) == 0 {
		return nil
	}
	return l.Disk.SyncDir(name)
}

type lyingFile struct{ disk.File }

// Sync implements disk.File.
func (lyingFile) Sync() error { return nil }

// SyncData implements disk.File.
func (lyingFile) SyncData() error { return nil }

// withDoor plants a node that answers its clients wrongly.
func withDoor(set func(*badDoor), faults ...string) func(*plan) {
	return func(p *plan) {
		p.only(faults...)
		p.wrapDoor = func(n *node.Node, w *World) door {
			d := &badDoor{node: n, world: w}
			set(d)
			return d
		}
	}
}

// badDoor does one thing wrong.
type badDoor struct {
	node  *node.Node
	world *World

	denies, takesOldFences, hurries, forgetsIDs, promises, dozes bool
}

// Do implements door.
func (d *badDoor) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if ack, ok := req.Commands[0].(*fsm.Ack); ok && d.takesOldFences {
		changed := *ack
		r, _, _ := d.node.Peek(shard, &fsm.ListQuery{Queue: ack.Queue, State: fsm.Reserved, Max: 1000})
		for _, job := range r.Jobs {
			if job.Serial == ack.Serial {
				changed.Fence = job.Fence
			}
		}
		req = &fsm.Request{Caller: req.Caller, ID: req.ID, Commands: []fsm.Command{&changed}}
	}
	if d.forgetsIDs {
		req = &fsm.Request{Caller: req.Caller, ID: fmt.Sprint(req.ID, "-", time.Now().UnixNano()), Commands: req.Commands}
	}
	reply, err := d.node.Do(ctx, shard, req)
	switch outcome := node.OutcomeOf(err); {
	case outcome == node.Unknown && d.denies:
		return reply, errors.Join(node.ErrNoLeader)
	case outcome == node.Unknown && d.promises:
		w := node.Witness{Term: 1, Index: 1 + d.node.Status().Shards[0].LastIndex}
		return node.Reply{Witness: w, Results: []fsm.Result{{Created: true, State: fsm.Delayed}}}, nil
	}
	return reply, err
}

// Reserve implements door.
func (d *badDoor) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	if d.hurries {
		r, _, _ := d.node.Peek(shard, &fsm.ListQuery{Queue: queues()[0], State: fsm.Delayed, Max: 1})
		for _, job := range r.Jobs {
			reschedule := &fsm.Reschedule{Queue: job.Queue, ID: job.ID, Given: fsm.GivenDelay}
			_, _ = d.node.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{reschedule}})
		}
	}
	reply, err := d.node.Reserve(ctx, shard, req, wait)
	if d.dozes && err == nil && len(reply.Results[0].Grants) > 0 {
		d.world.sleep(ctx, 2*punctual)
	}
	return reply, err
}
