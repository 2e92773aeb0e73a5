package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cluster/quota"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
)

// command is an entry of the catalog's log, in JSON. Exactly one of the pointers is set.
type command struct {
	// Format is the format of the entry. A later one than this program reads stops the node; it is
	// never skipped.
	Format fsm.Format `json:"format"`
	// Found records what the cluster is. The first one holds.
	Found *foundation `json:"found,omitempty"`
	// Join records a node, or updates its record. Its Draining stays unchanged.
	Join *Node `json:"join,omitempty"`
	// Silent are the server ids of recorded nodes of the same name that did not answer when Join
	// was proposed. A new node is recorded only if every other node of its name is among them.
	Silent []string `json:"silent,omitempty"`
	// Leave removes a node's record, and remembers that the node is gone.
	Leave *Departure `json:"leave,omitempty"`
	// Raise makes the cluster speak a later format.
	Raise *raise `json:"raise,omitempty"`
	// Drain sets whether a node is draining.
	Drain *drain `json:"drain,omitempty"`
	// Place records the servers that run a shard.
	Place *Placement `json:"place,omitempty"`
	// Settle changes the settings of the cluster that are not zero in it.
	Settle *Settings `json:"settle,omitempty"`
	// Lower allows Settle to lower MinVoters.
	Lower bool `json:"lower,omitempty"`
	// Create records a queue that is not recorded yet. Version is ignored.
	Create *queueRecord `json:"create,omitempty"`
	// Activate makes a queue that is being created Active.
	Activate *versioned `json:"activate,omitempty"`
	// Configure replaces a queue's settings if no other change came first.
	Configure *configuration `json:"configure,omitempty"`
	// Delete marks a queue as being deleted.
	Delete *versioned `json:"delete,omitempty"`
	// Forget removes the record of a queue.
	Forget *versioned `json:"forget,omitempty"`
	// AddToken records a token that is not recorded yet. EndToken sets when one ends.
	AddToken *tokens.Record `json:"addToken,omitempty"`
	EndToken *tokenEnd      `json:"endToken,omitempty"`
	// Limit sets or removes the quota of a namespace. ShardQuotas changes the quotas of one shard.
	Limit       *limitation         `json:"limit,omitempty"`
	ShardQuotas *quota.ShardChanges `json:"shares,omitempty"`
	// StartTask records a task, AdvanceTask how far it has come. StopTask asks it to end.
	StartTask   *bulk.Task   `json:"startTask,omitempty"`
	AdvanceTask *taskAdvance `json:"advanceTask,omitempty"`
	StopTask    *taskStop    `json:"stopTask,omitempty"`
	// Request makes a Create or a Configure safe to repeat.
	Request *request `json:"request,omitempty"`
}

// foundation is the part of a cluster that never changes.
type foundation struct {
	ClusterID string `json:"clusterId"`
	Shards    int    `json:"shards"`
}

// drain sets whether a node is draining. It changes nothing if fewer than Keep other nodes that do
// not drain would be left.
type drain struct {
	ServerID string `json:"serverId"`
	Draining bool   `json:"draining"`
	Keep     int    `json:"keep,omitempty"`
}

// versioned names a queue's record as of a version; 0 means any.
type versioned struct {
	Name    string `json:"name"`
	Version uint64 `json:"version,omitempty"`
}

// configuration is a change of settings that was made from version Version of the record, which is
// 0 if there was no record.
type configuration struct {
	Name     string         `json:"name"`
	Version  uint64         `json:"version"`
	Settings settingsRecord `json:"settings"`
}

// outcome is the result of a command.
type outcome struct {
	verdict verdict
	queue   QueueConfig // after the command
	// replayed: this is the outcome of an earlier command with the same request.
	replayed bool
}

// verdict says whether a command was carried out.
type verdict uint8

const (
	done verdict = iota
	// exists: the queue or token is recorded already.
	exists
	// overtaken: there is no such record, or it is not the one that the command was made from.
	overtaken
	// misused: the request was used before with other content.
	misused
	// taken: another node has the name.
	taken
	// impossible: the command is invalid in this state. Nothing was changed.
	impossible
	// unread: a node does not read the format that the cluster speaks, or that it would speak.
	unread
	// gone: the node left for good.
	gone
	// needed: too few nodes would be left, or there are too many tokens.
	needed
)

// machine is the catalog's state. It implements node.Machine.
type machine struct {
	state  catalogState
	byName map[string]*queueRecord
	byID   map[string]*answer // by request id
	// queueChanged is called when a record changes, so that the leader updates the shards.
	queueChanged func()
	// tasksChanged is called when a task begins or is asked to end, so that the leader carries it out.
	tasksChanged func()
	// altered is sent when records of queues change. A machine passes it on to the machine that is
	// restored in its place.
	altered *broadcast
	// access is the part of the state that authenticates callers. A machine passes it on, as it
	// does altered.
	access *shownAccess
	// digest is the digest of the state. It is nil after a change until the first request for it.
	// Readers share the machine, so it is atomic.
	digest atomic.Pointer[uint64]
}

// catalogState is the content of a snapshot.
type catalogState struct {
	// Format is the format that the cluster speaks. This snapshot, later entries, and the entries
	// of the shards have it.
	Format     fsm.Format      `json:"format"`
	Foundation foundation      `json:"foundation"`
	Settings   Settings        `json:"settings,omitzero"`
	Nodes      []Node          `json:"nodes"`                // by server id
	Departed   []Departure     `json:"departed,omitempty"`   // at most departedMax, oldest first
	Placements []Placement     `json:"placements,omitempty"` // by shard
	Queues     []*queueRecord  `json:"queues"`               // by name
	Namespaces []*quota.Record `json:"namespaces,omitempty"` // by name
	// Tokens are the records of bearer tokens, by id.
	Tokens []*tokens.Record `json:"tokens,omitempty"`
	// Tasks are acts on many jobs, oldest first.
	Tasks []*bulk.Task `json:"tasks,omitempty"`
	// Limited is the index of the last entry that set or removed a quota.
	Limited uint64 `json:"limited,omitempty"`
	// Answers are remembered outcomes, oldest first, and Clock is the time of the last command with
	// a request.
	Answers []*answer `json:"answers,omitempty"`
	Clock   int64     `json:"clockNanos,omitempty"`
}

func newMachine() *machine {
	return &machine{
		state: catalogState{Format: fsm.FirstFormat}, byName: map[string]*queueRecord{}, byID: map[string]*answer{},
		queueChanged: func() {}, tasksChanged: func() {}, altered: newBroadcast(), access: newAccess(),
	}
}

// Apply implements node.Machine. The value is an outcome.
func (m *machine) Apply(index uint64, entry []byte) (any, error) {
	c, err := decodeCommand(entry)
	if err != nil {
		return nil, fmt.Errorf("catalog entry %d: %w", index, err)
	}
	if m.check(&c) != nil {
		return outcome{verdict: impossible}, nil
	}
	m.digest.Store(nil)
	if c.Create != nil || c.Configure != nil || c.Delete != nil {
		defer m.queueChanged()
	}
	if c.Create != nil || c.Activate != nil || c.Delete != nil || c.Forget != nil {
		defer m.altered.send()
	}
	switch {
	case c.Found != nil:
		if m.state.Foundation == (foundation{}) {
			m.state.Foundation = *c.Found
		}
		return outcome{}, nil
	case c.Join != nil:
		return m.join(*c.Join, c.Silent), nil
	case c.Leave != nil:
		return m.removeNode(*c.Leave), nil
	case c.Raise != nil:
		out, err := m.raiseFormat(c.Raise)
		if err != nil {
			return nil, fmt.Errorf("catalog entry %d: %w", index, err)
		}
		return out, nil
	case c.Drain != nil:
		return m.drain(c.Drain), nil
	case c.Place != nil:
		m.place(*c.Place)
		return outcome{}, nil
	case c.Settle != nil:
		m.state.Settings = c.Settle.over(m.state.Settings)
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
	case c.AddToken != nil:
		return m.addToken(c.AddToken), nil
	case c.EndToken != nil:
		return m.endToken(c.EndToken), nil
	case c.Limit != nil:
		return m.limit(index, c.Limit), nil
	case c.ShardQuotas != nil:
		return m.changeShardQuotas(index, c.ShardQuotas), nil
	case c.StartTask != nil:
		return m.startTask(c.StartTask), nil
	case c.AdvanceTask != nil:
		return m.advanceTask(c.AdvanceTask), nil
	case c.StopTask != nil:
		return m.stopTask(c.StopTask), nil
	}
	return nil, fmt.Errorf("catalog entry %d holds no command of this program", index)
}

// findNode returns the position at which a node's record is or would be.
func (m *machine) findNode(serverID string) (int, bool) {
	return slices.BinarySearchFunc(m.state.Nodes, serverID, func(n Node, id string) int {
		return strings.Compare(n.ServerID, id)
	})
}

func (m *machine) join(n Node, silent []string) outcome {
	if _, left := m.departed(n.ServerID); left {
		return outcome{verdict: gone}
	}
	if m.admits(&n) != nil {
		return outcome{verdict: unread}
	}
	i, found := m.findNode(n.ServerID)
	if found {
		n.Draining = m.state.Nodes[i].Draining
		m.state.Nodes[i] = n
		m.showAccess()
		return outcome{}
	}
	for j := range m.state.Nodes {
		if other := &m.state.Nodes[j]; other.Name == n.Name && !slices.Contains(silent, other.ServerID) {
			return outcome{verdict: taken}
		}
	}
	m.state.Nodes = slices.Insert(m.state.Nodes, i, n)
	m.showAccess()
	return outcome{}
}

func (m *machine) drain(d *drain) outcome {
	i, found := m.findNode(d.ServerID)
	if !found {
		return outcome{verdict: overtaken}
	}
	if n := &m.state.Nodes[i]; d.Draining && !n.Draining && m.stayingBut(n.ServerID) < d.Keep {
		return outcome{verdict: needed}
	}
	m.state.Nodes[i].Draining = d.Draining
	return outcome{}
}

// stayingBut counts the nodes that do not drain, except one.
func (m *machine) stayingBut(serverID string) (staying int) {
	for i := range m.state.Nodes {
		if n := &m.state.Nodes[i]; n.ServerID != serverID && !n.Draining {
			staying++
		}
	}
	return staying
}

func (m *machine) place(p Placement) {
	slices.Sort(p.Servers)
	p.Servers = slices.Compact(p.Servers)
	i, found := slices.BinarySearchFunc(m.state.Placements, p.Shard, func(q Placement, shard uint32) int {
		return cmp.Compare(q.Shard, shard)
	})
	if !found {
		m.state.Placements = slices.Insert(m.state.Placements, i, p)
		return
	}
	m.state.Placements[i] = p
}

// find returns the position at which a queue's record is or would be.
func (m *machine) find(name string) int {
	i, _ := slices.BinarySearchFunc(m.state.Queues, name, func(r *queueRecord, name string) int {
		return strings.Compare(r.Name, name)
	})
	return i
}

func (m *machine) add(r *queueRecord) {
	m.state.Queues = slices.Insert(m.state.Queues, m.find(r.Name), r)
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

// delete marks a record as being deleted. From then on its version does not change.
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
	i := m.find(v.Name)
	m.state.Queues = slices.Delete(m.state.Queues, i, i+1)
	delete(m.byName, v.Name)
	return outcome{}
}

// encode returns the state in its one encoding.
func (m *machine) encode() []byte {
	data, err := json.Marshal(m.state)
	if err != nil {
		panic(fmt.Sprintf("cluster: the catalog cannot be encoded: %v", err)) // plain values only
	}
	return data
}

// Digest implements node.Machine. Each status report asks for it, so it is computed once per
// change.
func (m *machine) Digest() uint64 {
	if known := m.digest.Load(); known != nil {
		return *known
	}
	sum := digest(m.encode())
	m.digest.Store(&sum)
	return sum
}

func digest(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data) // never fails
	return h.Sum64()
}

// Snapshot implements node.Machine. It copies the catalog, which is small.
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
	restored.queueChanged, restored.tasksChanged = m.queueChanged, m.tasksChanged
	if err := formatOf(data); err != nil {
		return nil, fmt.Errorf("the catalog's snapshot: %w", err)
	}
	if err := decodeStrictly(data, &restored.state); err != nil {
		return nil, fmt.Errorf("decoding the catalog's snapshot: %w", err)
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
	if err := checkTokens(restored.state.Tokens); err != nil {
		return nil, fmt.Errorf("the catalog's snapshot: %w", err)
	}
	if slices.Contains(restored.state.Tasks, nil) {
		return nil, errors.New("the catalog's snapshot holds an empty task")
	}
	restored.access = m.access
	restored.showAccess()
	restored.altered = m.altered
	defer restored.altered.send()
	return restored, nil
}

// decodeStrictly decodes one JSON value and refuses unknown fields: this program must not skip what
// it does not know.
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
