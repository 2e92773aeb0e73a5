package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"

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

// TestEntriesThatAreRefused come from another node, which would end all nodes with them, now and at each start.
func TestEntriesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
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
		{"more partitions than shards", `{"format":1,"create":{"name":"q","partitions":4}}`, true},
		{"no partitions", `{"format":1,"create":{"name":"q"}}`, true},
		{"a queue without a name", `{"format":1,"create":{"partitions":1}}`, true},
		{"settings of no queue", `{"format":1,"configure":{"version":0}}`, true},
		{"a shard that there is not", `{"format":1,"place":{"shard":3,"servers":["a.1"]}}`, true},
		{"a node without an id", `{"format":1,"join":{"name":"x"}}`, true},
		{"an even factor", `{"format":1,"settle":{"factor":2}}`, true},
		{"a cluster without shards", `{"format":1,"found":{"clusterId":"c"}}`, true},
		{"a request without an id", `{"format":1,"delete":{"name":"q"},"request":{"id":"","content":"","atNanos":1}}`, true},
	}
	m := newMachine()
	apply(t, m, command{Found: &foundation{ClusterID: "c", Shards: testShards}})
	for _, tt := range tests {
		before := m.Digest()
		value, err := m.Apply(9, []byte(tt.entry))
		switch {
		case tt.harmless && (err != nil || value.(outcome).verdict != impossible || m.Digest() != before):
			t.Errorf("%s: the machine answers %+v, %v", tt.name, value, err)
		case !tt.harmless && err == nil:
			t.Errorf("%s: the machine went over it", tt.name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, GroupName, all)
		for _, tt := range tests {
			if !json.Valid([]byte(tt.entry)) {
				continue // a node does not send it
			}
			_, err := callPeer[proposed](t.Context(), others[0].cluster.peers, leader.serverID(), pathPropose, json.RawMessage(tt.entry))
			if node.OutcomeOf(err) != node.NotApplied {
				t.Errorf("%s: the leader answers %v", tt.name, err)
			}
		}
		if _, err := others[0].cluster.CreateQueue(t.Context(), "wide", testShards+1, fsm.Settings{}); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("creating a queue that is too wide gives %v", err)
		}
		for _, m := range all {
			m.stop()
			m.start(nil)
		}
		gossip(all...)
		await(t, "the cluster to be back", func() bool { return settled(all[0].cluster, 3, all...) })
	})
}

// TestRemovedNodesMayOnlyJoin: a removed node calls, and is refused. When it asks to join it is
// told that it was removed.
func TestRemovedNodesMayOnlyJoin(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, GroupName, all)
		removed := others[0]
		self := removed.serverID()
		if _, err := leader.cluster.RemoveNode(t.Context(), departure{ServerID: self}); err != nil { // although it answers
			t.Fatal(err)
		}
		if _, err := callPeer[Report](t.Context(), removed.cluster.peers, leader.serverID(), pathReport, struct{}{}); !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("a removed node's call gives %v", err)
		}
		join, err := json.Marshal(command{Format: fsm.FirstFormat, Join: &removed.cluster.members.record})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := callPeer[proposed](t.Context(), removed.cluster.peers, leader.serverID(), pathPropose, json.RawMessage(join)); !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("a removed node's own admission gives %v", err)
		}
		if left := removed.awaitLeft(); left.ServerID != self || leader.cluster.MayCall(self) {
			t.Errorf("it is told %v", left)
		}
	})
}
