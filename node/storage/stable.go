package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// The keys that Raft uses. It writes a vote as LastVoteTerm, then LastVoteCand.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// StableStore keeps term and vote in one checked file that is replaced as a whole. A vote's term is
// held in memory until its candidate arrives and both become durable together: a crash between
// Raft's two calls leaves the old vote, never the new term with the old candidate (hashicorp/raft
// issue 661).
//
// Methods may be called from any goroutine. A failed write fails the group.
type StableStore struct {
	fsys  disk.FS
	name  string
	guard *disk.Guard

	mu       disk.ChannelMutex // guards the following
	durable  map[string][]byte
	voteTerm []byte // LastVoteTerm waiting for its candidate, nil if none
}

var _ raft.StableStore = (*StableStore)(nil)

func openStable(fsys disk.FS, name string, g *disk.Guard) (*StableStore, error) {
	payload, err := disk.ReadRecord(fsys, name, stableMagic)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &disk.CorruptError{File: name, Detail: "missing; it holds this node's term and vote", Err: err}
		}
		return nil, err
	}
	values, err := decodePairs(payload)
	if err != nil {
		return nil, &disk.CorruptError{File: name, Detail: err.Error()}
	}
	return &StableStore{mu: disk.NewChannelMutex(), fsys: fsys, name: name, guard: g, durable: values}, nil
}

// Set implements raft.StableStore. It returns once the value is durable, together with a vote's
// term if key is the vote's candidate.
func (s *StableStore) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) == keyLastVoteTerm {
		s.voteTerm = bytes.Clone(value)
		return nil
	}
	if err := s.checkTerm(string(key), value); err != nil {
		return err
	}
	changed := map[string][]byte{string(key): bytes.Clone(value)}
	if string(key) == keyLastVoteCand && s.voteTerm != nil {
		changed[keyLastVoteTerm] = s.voteTerm
		s.voteTerm = nil
	}
	return s.write(changed)
}

// checkTerm refuses a term below the current one, which fails the group. Raft answers heartbeats
// outside its main loop. A heartbeat that an election has overtaken would bring back the term
// before, in which this node may have voted for another leader.
func (s *StableStore) checkTerm(key string, value []byte) error {
	held := s.durable[keyCurrentTerm]
	if key != keyCurrentTerm || len(held) != 8 || len(value) != 8 || bytes.Compare(value, held) >= 0 {
		return nil
	}
	err := fmt.Errorf("storage: %s: term %d after term %d", s.name, binary.BigEndian.Uint64(value),
		binary.BigEndian.Uint64(held))
	s.guard.Fail(err)
	return err
}

// SetUint64 implements raft.StableStore.
func (s *StableStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// Get implements raft.StableStore: the durable value, or nil if there is none.
func (s *StableStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.durable[string(key)]), nil
}

// GetUint64 implements raft.StableStore: the durable value, or 0 if there is none.
func (s *StableStore) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value := s.durable[string(key)]
	switch len(value) {
	case 0:
		return 0, nil
	case 8:
		return binary.BigEndian.Uint64(value), nil
	}
	return 0, fmt.Errorf("storage: %s holds %d bytes, not a number", key, len(value))
}

func (s *StableStore) write(changed map[string][]byte) error {
	next := maps.Clone(s.durable)
	same := true
	for key, value := range changed {
		old, ok := next[key]
		same = same && ok && bytes.Equal(old, value)
		next[key] = value
	}
	// Raft writes the term it has just read at every start; that costs no sync.
	if same {
		return nil
	}
	err := s.guard.Do("write "+s.name, func() error {
		return disk.WriteRecord(s.fsys, s.name, stableMagic, encodePairs(next))
	})
	if err != nil {
		return err
	}
	s.durable = next
	return nil
}

func encodePairs(values map[string][]byte) []byte {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(values[key])))
		b = append(b, values[key]...)
	}
	return b
}

func decodePairs(b []byte) (map[string][]byte, error) {
	values := make(map[string][]byte)
	field := func() ([]byte, error) {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return nil, fmt.Errorf("field length out of range, %d bytes before the end", len(b))
		}
		f := b[w : w+int(n)]
		b = b[w+int(n):]
		return f, nil
	}
	for len(b) > 0 {
		key, err := field()
		if err != nil {
			return nil, err
		}
		value, err := field()
		if err != nil {
			return nil, err
		}
		values[string(key)] = bytes.Clone(value)
	}
	return values, nil
}
