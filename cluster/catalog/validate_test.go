package catalog

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

func TestEveryCommandIsCounted(t *testing.T) {
	commands := 0
	for i := range reflect.TypeFor[command]().NumField() {
		var c command
		field := reflect.ValueOf(&c).Elem().Field(i)
		if field.Kind() != reflect.Pointer || field.Type() == reflect.TypeFor[*request]() {
			continue
		}
		commands++
		field.Set(reflect.New(field.Type().Elem()))
		c.Format = fsm.FirstFormat
		entry, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeCommand(entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	if commands < 11 {
		t.Errorf("there are %d commands", commands)
	}
}

// TestEntriesThatAreRefused are not logged: they would end all nodes, now and at each start.
func TestEntriesThatAreRefused(t *testing.T) {
	_, c, _ := open(t, t.TempDir())
	tests := []struct {
		name, entry string
		// harmless: it does not end a node that has it in its log.
		harmless bool
	}{
		{"no command", `{"format":1}`, false},
		{"a command that is null", `{"format":1,"delete":null}`, false},
		{"two commands", `{"format":1,"delete":{"name":"q"},"forget":{"name":"q"}}`, false},
		{"only a request", `{"format":1,"request":{"id":"r","content":"c","atNanos":1}}`, false},
		{"another format", fmt.Sprintf(`{"format":%d,"delete":{"name":"q"}}`, fsm.LatestFormat+1), false},
		{"an unknown command", `{"format":1,"explode":{}}`, false},
		{"two values", `{"format":1,"delete":{"name":"q"}} {}`, false},
		{"no JSON", `[`, false},
		{"more partitions than shards", `{"format":1,"create":{"name":"q","partitions":5}}`, true},
		{"no partitions", `{"format":1,"create":{"name":"q"}}`, true},
		{"a queue without a name", `{"format":1,"create":{"partitions":1}}`, true},
		{"settings of no queue", `{"format":1,"configure":{"version":0}}`, true},
		{"a shard that there is not", `{"format":1,"place":{"shard":4,"servers":["a.1"]}}`, true},
		{"a node without an id", `{"format":1,"join":{"name":"x"}}`, true},
		{"an even factor", `{"format":1,"settle":{"factor":2}}`, true},
		{"a cluster without shards", `{"format":1,"found":{"clusterId":"c"}}`, true},
		{"a request without an id", `{"format":1,"delete":{"name":"q"},"request":{"id":"","content":"","atNanos":1}}`, true},
	}
	m := newMachine()
	apply(t, m, command{Found: &foundation{ClusterID: "c", Shards: 4}})
	for _, tt := range tests {
		before := m.Digest()
		value, err := m.Apply(9, []byte(tt.entry))
		switch {
		case tt.harmless && (err != nil || value.(outcome).verdict != impossible || m.Digest() != before):
			t.Errorf("%s: the machine answers %+v, %v", tt.name, value, err)
		case !tt.harmless && err == nil:
			t.Errorf("%s: the machine went over it", tt.name)
		}
		if _, err := c.logFor(t.Context(), json.RawMessage(tt.entry)); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("%s: the leader answers %v", tt.name, err)
		}
	}
}
