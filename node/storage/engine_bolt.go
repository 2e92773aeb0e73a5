package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/belfrydb/belfry/node/storage/disk"
)

const boltFileName = "raft.db"

type boltEngine struct {
	store *raftboltdb.BoltStore
	name  string
	codec entryCodec
}

func createBolt(cfg engineConfig) error {
	name := filepath.Join(cfg.dir, boltFileName)
	store, err := raftboltdb.New(boltOptions(name))
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	if err := store.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", name, err)
	}
	return cfg.fsys.SyncDir(cfg.dir)
}

func boltOptions(name string) raftboltdb.Options {
	return raftboltdb.Options{Path: name, BoltOptions: &bbolt.Options{
		// The free list is rebuilt at open: no damage on disk can declare a live page free, and an
		// append does not write the whole list.
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	}}
}

func openBolt(cfg engineConfig) (engine, error) {
	name := filepath.Join(cfg.dir, boltFileName)
	if ok, err := disk.Exists(cfg.fsys, name); err != nil || !ok {
		// Opening it would create an empty one.
		return nil, &disk.CorruptError{File: name, Detail: "missing or unreadable", Err: errors.Join(fs.ErrNotExist, err)}
	}
	if err := contain(name, func() error { return checkBolt(name) }); err != nil {
		return nil, err
	}
	var e *boltEngine
	err := contain(name, func() error {
		store, err := raftboltdb.New(boltOptions(name))
		if err != nil {
			return &disk.CorruptError{File: name, Detail: "cannot be opened", Err: err}
		}
		e = &boltEngine{store: store, name: name, codec: cfg.codec}
		return e.verify(cfg.mark)
	})
	if err != nil {
		if e != nil {
			err = errors.Join(err, e.close())
		}
		return nil, err
	}
	return e, nil
}

// contain turns a panic or memory fault of bbolt, which trusts what it maps, into an error.
func contain(name string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &disk.CorruptError{File: name, Detail: fmt.Sprintf("reading it failed badly: %v", p)}
		}
	}()
	return read()
}

// checkBolt opens the file read-only and checks its buckets, before anything writes to it.
func checkBolt(name string) (err error) {
	db, err := bbolt.Open(name, disk.FilePerm, &bbolt.Options{ReadOnly: true, PreLoadFreelist: false})
	if err != nil {
		return &disk.CorruptError{File: name, Detail: "cannot be opened", Err: err}
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"logs", "conf"} {
			if tx.Bucket([]byte(bucket)) == nil {
				return &disk.CorruptError{File: name, Detail: "bucket " + bucket + " is missing"}
			}
		}
		return nil
	})
}

func (e *boltEngine) verify(m mark) error {
	first, last, err := e.span()
	if err != nil {
		return &disk.CorruptError{File: e.name, Detail: "its range cannot be read", Err: err}
	}
	if last < m.log {
		return &disk.CorruptError{File: e.name, Index: last + 1,
			Detail: fmt.Sprintf("ends at entry %d, but entry %d was durable", last, m.log)}
	}
	var term uint64
	for index := first; last > 0 && index <= last; index++ {
		var l raft.Log
		if err := e.getLog(index, &l); err != nil {
			return &disk.CorruptError{File: e.name, Index: index, Detail: "cannot be read back", Err: err}
		}
		if l.Index != index || l.Term < term {
			return &disk.CorruptError{File: e.name, Index: index,
				Detail: fmt.Sprintf("found entry %d of term %d after term %d", l.Index, l.Term, term)}
		}
		term = l.Term
	}
	return nil
}

func (e *boltEngine) span() (uint64, uint64, error) {
	first, err := e.store.FirstIndex()
	if err != nil {
		return 0, 0, err
	}
	last, err := e.store.LastIndex()
	return first, last, err
}

func (e *boltEngine) storeLogs(logs []*raft.Log) error {
	sealed := make([]*raft.Log, len(logs))
	for i, l := range logs {
		sealed[i] = e.codec.seal(l)
	}
	return e.store.StoreLogs(sealed)
}

func (e *boltEngine) getLog(index uint64, l *raft.Log) error {
	// The library decodes into what is there; a field that is absent in the entry would keep its
	// old value.
	*l = raft.Log{}
	if err := e.store.GetLog(index, l); err != nil {
		return err
	}
	return e.codec.unseal(l)
}

func (e *boltEngine) deleteRange(first, last uint64) error { return e.store.DeleteRange(first, last) }

func (e *boltEngine) fileOf(uint64) string { return e.name }

func (e *boltEngine) close() error { return e.store.Close() }
