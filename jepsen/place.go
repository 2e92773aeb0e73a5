package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/belfrydb/belfry/jepsen/disk"
	"github.com/belfrydb/belfry/jepsen/network"
)

// wires is the network, which every client becomes part of when it first asks for its way to a
// node.
type wires struct {
	*network.Network
	mu    sync.Mutex
	known map[string]bool
}

func newWires(ctx context.Context, mode network.Mode, names []string, seed uint64, log *slog.Logger) (*wires, error) {
	n, err := network.New(ctx, network.Config{Nodes: names, Mode: mode, Seed: seed, Logger: log})
	if err != nil {
		return nil, err
	}
	return &wires{Network: n, known: map[string]bool{}}, nil
}

// ClientURL returns where a client reaches a node.
func (w *wires) ClientURL(client, node string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known[client] {
		if err := w.AddClient(context.Background(), client); err != nil {
			return "", err
		}
		w.known[client] = true
	}
	return w.Network.ClientURL(client, node)
}

// clients returns the clients that became part of it.
func (w *wires) clients() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.known))
}

// disks are where the nodes have their data: directories, or disks in user space.
type disks struct {
	dir    string
	faults bool
	log    *slog.Logger

	mu    sync.Mutex
	disks map[string]*disk.Disk
}

func newDisks(dir string, faults bool, log *slog.Logger) *disks {
	return &disks{dir: dir, faults: faults, log: log, disks: map[string]*disk.Disk{}}
}

// open returns the data directory of a node, which is new and empty.
func (d *disks) open(ctx context.Context, node string) (string, error) {
	data := filepath.Join(d.dir, "data", node)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", fmt.Errorf("making the data directory of %s: %w", node, err)
	}
	if !d.faults {
		return data, nil
	}
	made, err := disk.Mount(ctx, disk.Config{Mountpoint: data, Backing: filepath.Join(d.dir, "backing", node),
		Logger: d.log})
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.disks[node] = made
	return data, nil
}

// faulty returns how to find the disk of a node; nil if the disks are the system's.
func (d *disks) faulty() func(string) *disk.Disk {
	if !d.faults {
		return nil
	}
	return func(node string) *disk.Disk {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.disks[node]
	}
}

// close unmounts all disks.
func (d *disks) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []error
	for node, one := range d.disks {
		if err := one.Close(); err != nil {
			problems = append(problems, fmt.Errorf("unmounting the disk of %s: %w", node, err))
		}
	}
	return errors.Join(problems...)
}

// emptyDir makes a directory, or takes one that is empty. What another run left in it would be
// taken for this one's.
func emptyDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("making the directory of the run: %w", err)
	}
	inside, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("looking into the directory of the run: %w", err)
	}
	if len(inside) > 0 {
		return fmt.Errorf("--dir: %s is not empty", path)
	}
	return nil
}

// tally counts what happened, by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int64
}

func (t *tally) add(what string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int64{}
	}
	t.n[what] += n
}

func (t *tally) counts() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.n)
}
