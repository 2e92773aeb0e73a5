package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/node"
)

// catalogFormat is the version of commands and snapshots. A later one stops the node; it is never skipped.
const catalogFormat = 1

// command is an entry of the catalog's log, in JSON. Exactly one of the pointers is set.
type command struct {
	Format int `json:"format"`
	// Found says what the cluster is; the first one holds.
	Found *foundation `json:"found,omitempty"`
	// Join records a node, or its new address.
	Join *Node `json:"join,omitempty"`
	// Create records a queue that is not recorded yet. Version is ignored.
	Create *queueRecord `json:"create,omitempty"`
	// Activate ends a queue's birth.
	Activate *versioned `json:"activate,omitempty"`
	// Configure replaces a queue's settings if nobody else has meanwhile.
	Configure *configuration `json:"configure,omitempty"`
	// Delete begins a queue's end.
	Delete *versioned `json:"delete,omitempty"`
	// Forget removes the record of a queue.
	Forget *versioned `json:"forget,omitempty"`
	// Request makes a Create or a Configure safe to repeat.
	Request *request `json:"request,omitempty"`
}

// foundation is what never changes in a cluster.
type foundation struct {
	ClusterID string `json:"clusterId"`
	Shards    int    `json:"shards"`
}

// versioned names a queue's record as of a version; 0 means any.
type versioned struct {
	Name    string `json:"name"`
	Version uint64 `json:"version,omitempty"`
}

// configuration is a change of settings that was made from version Version of the record; 0 if there was none.
type configuration struct {
	Name     string         `json:"name"`
	Version  uint64         `json:"version"`
	Settings settingsRecord `json:"settings"`
}

// outcome is what a command gives.
type outcome struct {
	verdict verdict
	queue   QueueConfig // as it is then
	// replayed: it is the outcome of an earlier command with the same request.
	replayed bool
}

// verdict says whether a command was carried out.
type verdict uint8

const (
	done verdict = iota
	// exists: the queue is recorded already.
	exists
	// overtaken: the record is not the one that the command was made from.
	overtaken
	// misused: the request was used before with other content.
	misused
)

// machine is the catalog's state. It implements node.Machine.
type machine struct {
	state  catalogState
	byName map[string]*queueRecord
	byID   map[string]*answer // by request id
}

// catalogState is what a snapshot holds.
type catalogState struct {
	Format     int            `json:"format"`
	Foundation foundation     `json:"foundation"`
	Nodes      []Node         `json:"nodes"`  // by server id
	Queues     []*queueRecord `json:"queues"` // by name
	// Answers are remembered outcomes, oldest first, and Clock is the time of the last command with a request.
	Answers []*answer `json:"answers,omitempty"`
	Clock   int64     `json:"clockNanos,omitempty"`
}

func newMachine() *machine {
	return &machine{state: catalogState{Format: catalogFormat}, byName: map[string]*queueRecord{}, byID: map[string]*answer{}}
}

// Apply implements node.Machine. The value is an outcome.
func (m *machine) Apply(index uint64, entry []byte) (any, error) {
	var c command
	if err := decodeStrictly(entry, &c); err != nil {
		return nil, fmt.Errorf("catalog entry %d: %w", index, err)
	}
	if c.Format != catalogFormat {
		return nil, fmt.Errorf("catalog entry %d has format %d, this program reads %d", index, c.Format, catalogFormat)
	}
	switch {
	case c.Found != nil:
		if m.state.Foundation == (foundation{}) {
			m.state.Foundation = *c.Found
		}
		return outcome{}, nil
	case c.Join != nil:
		m.join(*c.Join)
		return outcome{}, nil
	case c.Create != nil:
		return m.once(c.Request, func() outcome { return m.create(index, c.Create) }), nil
	case c.Activate != nil:
		return m.activate(c.Activate), nil
	case c.Configure != nil:
		return m.once(c.Request, func() outcome { return m.configure(index, c.Configure) }), nil
	case c.Delete != nil:
		return m.delete(c.Delete), nil
	case c.Forget != nil:
		return m.forget(c.Forget), nil
	}
	return nil, fmt.Errorf("catalog entry %d holds no command of this program", index)
}

func (m *machine) join(n Node) {
	i, found := slices.BinarySearchFunc(m.state.Nodes, n.ServerID, func(a Node, id string) int { return strings.Compare(a.ServerID, id) })
	if !found {
		m.state.Nodes = slices.Insert(m.state.Nodes, i, n)
		return
	}
	m.state.Nodes[i] = n
}

// place returns where a queue's record is or would be.
func (m *machine) place(name string) int {
	i, _ := slices.BinarySearchFunc(m.state.Queues, name, func(r *queueRecord, name string) int { return strings.Compare(r.Name, name) })
	return i
}

func (m *machine) add(r *queueRecord) {
	m.state.Queues = slices.Insert(m.state.Queues, m.place(r.Name), r)
	m.byName[r.Name] = r
}

func (m *machine) create(index uint64, r *queueRecord) outcome {
	if known := m.byName[r.Name]; known != nil {
		return outcome{verdict: exists, queue: known.config()}
	}
	r.Version, r.State = index, Creating
	m.add(r)
	return outcome{queue: r.config()}
}

func (m *machine) activate(v *versioned) outcome {
	r := m.byName[v.Name]
	if r == nil || r.State == Deleting {
		return outcome{verdict: overtaken}
	}
	r.State = Active
	return outcome{queue: r.config()}
}

func (m *machine) configure(index uint64, c *configuration) outcome {
	r := m.byName[c.Name]
	switch {
	case r == nil && c.Version == 0:
		r = &queueRecord{Name: c.Name, Partitions: 1, State: Active}
		m.add(r)
	case r == nil || r.Version != c.Version || r.State == Deleting:
		return outcome{verdict: overtaken}
	}
	r.Version, r.Settings = index, c.Settings
	return outcome{queue: r.config()}
}

// delete marks a record; from then on its version stays as it is.
func (m *machine) delete(v *versioned) outcome {
	r := m.byName[v.Name]
	if r == nil || v.Version != 0 && v.Version != r.Version {
		return outcome{verdict: overtaken}
	}
	r.State = Deleting
	return outcome{queue: r.config()}
}

func (m *machine) forget(v *versioned) outcome {
	r := m.byName[v.Name]
	if r == nil {
		return outcome{}
	}
	if v.Version != 0 && v.Version != r.Version {
		return outcome{verdict: overtaken}
	}
	i := m.place(v.Name)
	m.state.Queues = slices.Delete(m.state.Queues, i, i+1)
	delete(m.byName, v.Name)
	return outcome{}
}

// encode returns the state in the one form that it has.
func (m *machine) encode() []byte {
	data, err := json.Marshal(m.state)
	if err != nil {
		panic(fmt.Sprintf("cluster: the catalog cannot be encoded: %v", err)) // plain values only
	}
	return data
}

// Digest implements node.Machine.
func (m *machine) Digest() uint64 { return digest(m.encode()) }

func digest(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data) // never fails
	return h.Sum64()
}

// Snapshot implements node.Machine. The catalog is small: it is copied.
func (m *machine) Snapshot() node.MachineSnapshot { return snapshot(m.encode()) }

// snapshot is an encoded state.
type snapshot []byte

// WriteTo implements io.WriterTo.
func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s)
	return int64(n), err
}

// Digest implements node.MachineSnapshot.
func (s snapshot) Digest() uint64 { return digest(s) }

// Release implements node.MachineSnapshot.
func (snapshot) Release() {}

// Restore implements node.Machine.
func (m *machine) Restore(r io.Reader) (node.Machine, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading the catalog's snapshot: %w", err)
	}
	restored := newMachine()
	if err := decodeStrictly(data, &restored.state); err != nil {
		return nil, fmt.Errorf("decoding the catalog's snapshot: %w", err)
	}
	if restored.state.Format != catalogFormat {
		return nil, fmt.Errorf("the catalog's snapshot has format %d, this program reads %d", restored.state.Format, catalogFormat)
	}
	for _, q := range restored.state.Queues {
		if q == nil || restored.byName[q.Name] != nil {
			return nil, errors.New("the catalog's snapshot holds a queue twice or an empty one")
		}
		restored.byName[q.Name] = q
	}
	for _, a := range restored.state.Answers {
		if a == nil || restored.byID[a.Request.ID] != nil {
			return nil, errors.New("the catalog's snapshot holds an answer twice or an empty one")
		}
		restored.byID[a.Request.ID] = a
	}
	return restored, nil
}

// decodeStrictly decodes one JSON value and refuses unknown fields: what this program does not know it must not skip.
func decodeStrictly(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}
