package gossip

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
)

const (
	// addressFile keeps the addresses at which members were seen. It is a hint: without it, or with
	// one that cannot be read, a node asks its join addresses only.
	addressFile = "gossip-addresses.json"
	// addressesMax bounds the addresses that are kept and tried; those seen longest ago are forgotten
	// first.
	addressesMax = 64
)

// addressBook is the addresses at which members were seen, the latest at the end. One goroutine
// uses it.
type addressBook struct {
	path  string // empty: kept in memory only
	addrs []netip.AddrPort
	dirty bool
}

// addressRecord is the content of the file.
type addressRecord struct {
	Addresses []netip.AddrPort `json:"addresses"`
}

// loadAddresses reads the book of a data directory. The book can be used also if there was an
// error.
func loadAddresses(dir string) (*addressBook, error) {
	if dir == "" {
		return &addressBook{}, nil
	}
	book := &addressBook{path: filepath.Join(dir, addressFile)}
	data, err := os.ReadFile(book.path)
	if errors.Is(err, fs.ErrNotExist) {
		return book, nil
	}
	if err != nil {
		return book, fmt.Errorf("reading the addresses of other nodes: %w", err)
	}
	var record addressRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return book, fmt.Errorf("reading the addresses of other nodes from %s: %w", book.path, err)
	}
	for _, addr := range record.Addresses {
		if addr.IsValid() && addr.Port() != 0 {
			book.add(addr)
		}
	}
	book.dirty = false
	return book, nil
}

// add notes that a member is at an address.
func (b *addressBook) add(addr netip.AddrPort) {
	if i := slices.Index(b.addrs, addr); i >= 0 {
		if i == len(b.addrs)-1 {
			return
		}
		b.addrs = slices.Delete(b.addrs, i, i+1)
	} else {
		b.dirty = true // the order alone is not worth a write
	}
	b.addrs = append(b.addrs, addr)
	if len(b.addrs) > addressesMax {
		b.addrs = slices.Delete(b.addrs, 0, 1)
	}
}

// remove forgets an address.
func (b *addressBook) remove(addr netip.AddrPort) {
	if i := slices.Index(b.addrs, addr); i >= 0 {
		b.addrs = slices.Delete(b.addrs, i, i+1)
		b.dirty = true
	}
}

// save writes the book if it changed. A crash leaves the old file or the new one; losing it to a
// power cut costs a hint, so it is not synced.
func (b *addressBook) save() error {
	if !b.dirty || b.path == "" {
		return nil
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	if err := enc.Encode(addressRecord{Addresses: b.addrs}); err != nil {
		return fmt.Errorf("writing the addresses of other nodes: %w", err)
	}
	tmp := b.path + ".tmp"
	if err := os.WriteFile(tmp, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the addresses of other nodes: %w", err)
	}
	if err := os.Rename(tmp, b.path); err != nil {
		return fmt.Errorf("writing the addresses of other nodes: %w", err)
	}
	b.dirty = false
	return nil
}
