package lab

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Key seals gossip: a line of a file of keys.
type Key string

// NewKey returns a new random key.
func NewKey() Key {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return Key(base64.StdEncoding.EncodeToString(b[:]))
}

// keysFile is where the node finds its gossip keys.
func (n *Node) keysFile() string {
	name := n.Name
	if n.stranger {
		name = "stranger-" + name
	}
	return filepath.Join(n.lab.cfg.Dir, "keys", name)
}

// equip gives the node all that it proves itself with.
func (n *Node) equip(keys []Key) error {
	if err := n.writeKeys(keys); err != nil || n.lab.secrets == nil {
		return err
	}
	return n.lab.secrets.Equip(n.Name)
}

// writeKeys gives the node keys, of which the first seals, and all open. It replaces the file as a
// whole: the node may be reading it.
func (n *Node) writeKeys(keys []Key) error {
	var text strings.Builder
	for _, k := range keys {
		fmt.Fprintln(&text, k)
	}
	fresh := n.keysFile() + ".new"
	if err := errors.Join(os.WriteFile(fresh, []byte(text.String()), 0o600), os.Rename(fresh, n.keysFile())); err != nil {
		return fmt.Errorf("writing the gossip keys of %s: %w", n.Name, err)
	}
	return nil
}

// Rekey gives the node other gossip keys and tells it, if it runs, to read them. Rekeyed says when
// it has.
func (n *Node) Rekey(keys []Key) error {
	if err := n.writeKeys(keys); err != nil {
		return err
	}
	return n.Signal(syscall.SIGHUP)
}

// rekeyed is what a node logs when it has read its keys again.
const rekeyed = "gossip keys reloaded"

// Rekeyed returns how often the node, in all its lives, has said that it had read its keys again.
func (n *Node) Rekeyed() (int, error) { return n.said(rekeyed) }

// said returns how often the node, in all its lives, has logged a text.
func (n *Node) said(what string) (int, error) {
	text, err := os.ReadFile(n.Log)
	if err != nil {
		return 0, fmt.Errorf("reading the log of %s: %w", n.Name, err)
	}
	return strings.Count(string(text), what), nil
}

// Reequip gives the node a new certificate and what else there is now of a secured cluster, and
// tells it, if it runs, to read that. Reequipped says when it has.
func (n *Node) Reequip() error {
	if err := n.lab.secrets.Equip(n.Name); err != nil {
		return err
	}
	return n.Signal(syscall.SIGHUP)
}

// reequipped is what a node logs when it has read its certificates again, which it does after its
// root tokens.
const reequipped = "certificates reloaded"

// Reequipped returns how often the node, in all its lives, has said that it had read its files
// again.
func (n *Node) Reequipped() (int, error) { return n.said(reequipped) }

// Keys returns the gossip keys that a node is given which is made now.
func (l *Lab) Keys() []Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Key(nil), l.keys...)
}

// SetKeys says which gossip keys a node is given that is made from now on.
func (l *Lab) SetKeys(keys []Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = append([]Key(nil), keys...)
}
