package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// strangerPort is where a stranger listens for clients. A client accepts any server at the address
// that it knows. A stranger is there for nodes to meet, so no client must find it.
const strangerPort = 7500

// Stranger says what a process is that is not part of the lab, and stands at an address of its
// network.
type Stranger struct {
	// Place is the node at whose address it listens for nodes, which must not run, or a name that the
	// network knows beside the lab's nodes.
	Place string
	// Name is what it calls itself, Data its data directory.
	Name, Data string
	// Joins says that it asks the lab's nodes to be taken in. Else it is the first of a cluster of its
	// own.
	Joins bool
}

// Stranger returns a process that is not part of the lab: it keeps no journal, its clock is right,
// and its end is not a surprise. It has the gossip keys that a new node has, and a certificate for
// its name.
func (l *Lab) Stranger(s Stranger) (*Node, error) {
	n := &Node{
		lab: l, Name: s.Name, Data: s.Data, Log: filepath.Join(l.cfg.Dir, "strangers", s.Name+"-at-"+s.Place+".log"),
		place: s.Place, stranger: true, joins: s.Joins,
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.Log), 0o700), os.MkdirAll(s.Data, 0o700)); err != nil {
		return nil, fmt.Errorf("making a directory for a stranger: %w", err)
	}
	return n, n.equip(l.Keys())
}
