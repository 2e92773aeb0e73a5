package planted

import "strings"

// switchText returns the file that tells a package which bug is planted.
func switchText(name string) string {
	var names []string
	for _, b := range Bugs() {
		names = append(names, quoted(b.Name))
	}
	return strings.NewReplacer("PACKAGE", name, "VARIABLE", Variable, "NAMES",
		strings.Join(names, ", ")).Replace(`package PACKAGE

import "os"

var plantedName = os.Getenv("VARIABLE")

func init() {
	switch plantedName {
	case "", NAMES:
	default:
		panic("VARIABLE names no bug: " + plantedName)
	}
}

func planted(name string) bool { return plantedName == name }
`)
}

// helpers returns what the edits of a package need besides, by its folder: what would take an
// import that the edited file does not have.
func helpers() map[string]string {
	return map[string]string{
		"cluster/routing": routingHelpers, "cluster/tasks": tasksHelpers,
		"node": nodeHelpers, "node/longpoll": longpollHelpers, "node/peer": peerHelpers, "node/storage": storageHelpers,
		"mirror": mirrorHelpers("mirror"), "mirror/pair": mirrorHelpers("pair"),
	}
}

const routingHelpers = `package routing

import "sync"

var plantedLeaders sync.Map

func plantedFirst(shard uint32, server string) string {
	first, _ := plantedLeaders.LoadOrStore(shard, server)
	return first.(string)
}
`

const tasksHelpers = `package tasks

import "sync"

var plantedDeaf sync.Map
`

const peerHelpers = `package peer

import "time"

func plantedHeard(ask func() error) bool {
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	select {
	case err := <-answered:
		return err == nil
	case <-time.After(200 * time.Millisecond):
		return false
	}
}
`

const longpollHelpers = `package longpoll

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/propose"
)

func plantedReply(req *fsm.Request) (propose.Reply, bool) {
	reply := propose.Reply{Results: make([]fsm.Result, len(req.Commands))}
	for i, c := range req.Commands {
		switch c := c.(type) {
		case *fsm.Ack:
			reply.Results[i] = fsm.Result{State: fsm.Acked}
		case *fsm.Put:
			if c.ID == "" {
				return propose.Reply{}, false
			}
			reply.Results[i] = fsm.Result{Created: true, State: fsm.Delayed, Partition: c.Partition}
		default:
			return propose.Reply{}, false
		}
	}
	return reply, true
}
`

const nodeHelpers = `package node

import (
	"sync"

	"github.com/belfrydb/belfry/fsm"
)

type plantedKey struct {
	shard uint32
	queue string
}

var plantedResults sync.Map

func plantedLast(shard uint32, req *fsm.Request, results []fsm.Result) []fsm.Result {
	key := plantedKey{shard, req.Commands[0].(*fsm.Reserve).Queues[0]}
	if len(results) > 0 && len(results[0].Grants) > 0 {
		plantedResults.Store(key, results)
		return results
	}
	if last, ok := plantedResults.LoadAndDelete(key); ok {
		return last.([]fsm.Result)
	}
	return results
}
`

const storageHelpers = `package storage

import (
	"errors"
	"os"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
)

func plantedSyncs() bool { return time.Now().Unix()%8 == 0 }

func plantedWrite(fsys disk.FS, name string, data []byte) error {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}
`

func mirrorHelpers(name string) string {
	return "package " + name + `

import (
	"math/rand/v2"
	"time"
)

func plantedPause() {
	if rand.N(2) == 0 {
		time.Sleep(rand.N(4 * time.Second))
	}
}

// plantedWait waits for an end, one time in four: of several bridges some must not wait, or none
// would do what the late one does again.
func plantedWait(end <-chan struct{}) {
	if rand.N(4) == 0 {
		<-end
	}
}

func plantedFence() uint64 { return uint64(time.Now().UnixMicro()) }
`
}
