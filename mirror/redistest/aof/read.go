// Package aof reads the append-only file of a Redis server, and reports what happened to a payload
// of a list. The file has the commands of Redis and their clients, even if no client got the
// answer. So it distinguishes a job that a client popped before its answer died with Redis
// (Redisson delivers at most once) from a job that never arrived or that the mirror removed.
package aof

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Place is where a command begins.
type Place struct {
	// File is the name of the file, without its directory.
	File   string
	Offset int64
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Offset) }

// Command is a command that changed something, as Redis wrote it down: BLPOP is LPOP, and a script
// is what it did, between MULTI and EXEC.
type Command struct {
	At   Place
	Args []string
}

// ErrRewritten says that the beginning is gone: Redis has rewritten the file. It does not where
// auto-aof-rewrite-percentage is 0.
var ErrRewritten = errors.New("the append-only file was rewritten, so what was before is not known")

// Read returns the commands that a server stored in its data directory, in order. They are in a
// file appendonly.aof, or since Redis 7 in a base and the files after it in appendonlydir,
// according to its manifest. An incomplete last command is left out, as Redis itself does.
//
// Errors: [ErrRewritten] if the base has keys in the form of a snapshot; a file that cannot be read
// or is damaged in its middle.
func Read(dir string) ([]Command, error) {
	manifests, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.manifest"))
	switch {
	case err != nil:
		return nil, err
	case len(manifests) == 0:
		return readFile(filepath.Join(dir, "appendonly.aof"))
	case len(manifests) > 1:
		return nil, fmt.Errorf("there are %d manifests: %q", len(manifests), manifests)
	}
	names, err := readManifest(manifests[0])
	if err != nil {
		return nil, err
	}
	var all []Command
	for _, name := range names {
		some, err := readFile(filepath.Join(dir, "appendonlydir", name))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// readManifest returns the files that make up the data, in order: lines such as "file
// appendonly.aof.1.incr.aof seq 1 type i".
func readManifest(path string) (names []string, err error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller names the directory
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 6 || words[0] != "file" || words[4] != "type" {
			return nil, fmt.Errorf("reading the manifest %s: the line %q is not understood", path, line)
		}
		if words[5] != "h" { // those are history, which Redis deletes
			names = append(names, words[1])
		}
	}
	return names, nil
}

// readFile reads one file.
func readFile(path string) ([]Command, error) {
	file, err := os.Open(path) //nolint:gosec // the caller names the directory
	if err != nil {
		return nil, fmt.Errorf("reading an append-only file: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	in := &reader{in: bufio.NewReader(file)}
	if err := in.skipSnapshot(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var all []Command
	for {
		at := Place{filepath.Base(path), in.offset}
		args, err := in.command()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s at %d: %w", path, at.Offset, err)
		case args != nil:
			all = append(all, Command{at, args})
		}
	}
}

// reader reads commands and counts bytes.
type reader struct {
	in     *bufio.Reader
	offset int64
}

// command returns the next command, nil for a line that is a remark.
func (r *reader) command() ([]string, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(line, "#") { // a time, with aof-timestamp-enabled
		return nil, nil
	}
	words, err := length(line, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, 0, min(words, 1<<10))
	for range words {
		if line, err = r.line(); err != nil {
			return nil, err
		}
		size, err := length(line, '$')
		if err != nil {
			return nil, err
		}
		text, err := r.bytes(size + len("\r\n"))
		if err != nil {
			return nil, err
		}
		args = append(args, string(text[:size]))
	}
	return args, nil
}

func (r *reader) line() (string, error) {
	line, err := r.in.ReadString('\n')
	r.offset += int64(len(line))
	return strings.TrimSuffix(line, "\r\n"), err
}

func (r *reader) bytes(n int) ([]byte, error) {
	text := make([]byte, n)
	got, err := io.ReadFull(r.in, text)
	r.offset += int64(got)
	return text, err
}

// length reads a line such as "*3".
func length(line string, kind byte) (int, error) {
	const most = 512 << 20 // that of a string of Redis
	if line == "" || line[0] != kind {
		return 0, fmt.Errorf("the line is %q, should begin with %c", line, kind)
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("the line is %q, should be %c and a number up to %d", line, kind, most)
	}
	return n, nil
}

// The marks in a snapshot without keys.
const (
	rdbMagic    = "REDIS"
	rdbVersion  = 4 // digits
	rdbAux      = 0xfa
	rdbEnd      = 0xff
	rdbChecksum = 8
)

// skipSnapshot reads over the snapshot with which a base begins, if it is one of an empty Redis.
func (r *reader) skipSnapshot() error {
	if head, err := r.in.Peek(len(rdbMagic)); err != nil || string(head) != rdbMagic {
		return nil
	}
	if _, err := r.bytes(len(rdbMagic) + rdbVersion); err != nil {
		return err
	}
	for {
		mark, err := r.bytes(1)
		if err != nil {
			return err
		}
		switch mark[0] {
		case rdbAux:
			for range 2 { // name and value
				if err := r.skipString(); err != nil {
					return err
				}
			}
		case rdbEnd:
			_, err := r.bytes(rdbChecksum)
			return err
		default:
			return ErrRewritten
		}
	}
}

// skipString reads over a string of a snapshot.
func (r *reader) skipString() error {
	first, err := r.bytes(1)
	if err != nil {
		return err
	}
	size := int(first[0] & 0x3f)
	switch first[0] >> 6 {
	case 0:
	case 1:
		low, err := r.bytes(1)
		if err != nil {
			return err
		}
		size = size<<8 | int(low[0])
	case 3: // a number of 1, 2 or 4 bytes
		if size > 2 {
			return fmt.Errorf("a string of the kind %d is not understood", size)
		}
		size = 1 << size
	default:
		return fmt.Errorf("a string of the length %#x is not understood", first[0])
	}
	_, err = r.bytes(size)
	return err
}
