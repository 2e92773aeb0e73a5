package machine_test

import (
	"reflect"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/model"
)

// implementation is one way to be a shard.
type implementation struct {
	name string
	open func(t testing.TB, cfg fsm.Config) shard
}

func implementations() []implementation {
	return []implementation{
		{"model", func(_ testing.TB, cfg fsm.Config) shard { return modelShard{model.New(cfg)} }},
		{"machine", func(t testing.TB, cfg fsm.Config) shard {
			return &machineShard{Machine: machine.New(cfg), failed: func(err error) { t.Fatal(err) }}
		}},
	}
}

// machineShard is the machine behind its codec: every entry goes through bytes, as in a log.
type machineShard struct {
	*machine.Machine
	format fsm.Format // of the entries; 0 means the first
	failed func(error)
}

// speak has the entries of a shard from here on be of a format.
func speak(s shard, format fsm.Format) {
	switch s := s.(type) {
	case modelShard:
		s.Speak(format)
	case *machineShard:
		s.format = format
	}
}

// Apply encodes and applies an entry. It spoils the bytes afterwards, which the machine must not
// have kept.
func (s *machineShard) Apply(stamp fsm.Time, requests []fsm.Request) []fsm.Result {
	entry := encode(s.format, stamp, requests)
	list, err := s.Machine.Apply(s.Index()+1, entry)
	if err != nil {
		s.failed(err)
	}
	for i := range entry {
		entry[i] = 0xdb
	}
	return list
}

func encode(format fsm.Format, stamp fsm.Time, requests []fsm.Request) []byte {
	encoded := make([][]byte, len(requests))
	for i := range requests {
		encoded[i] = codec.AppendRequestIn(nil, format, &requests[i])
	}
	return codec.AppendEntryIn(nil, max(format, fsm.FirstFormat), stamp, encoded)
}

// TestModelShardsAlike makes sure that what the scenarios ask of a shard is the machine's own, not
// added by its wrapper.
func TestModelShardsAlike(t *testing.T) {
	t.Parallel()
	wrapper := reflect.TypeFor[*machineShard]()
	if n := reflect.TypeFor[*machine.Machine]().NumMethod(); wrapper.NumMethod() != n {
		t.Errorf("the wrapper has %d methods, the machine %d", wrapper.NumMethod(), n)
	}
}
