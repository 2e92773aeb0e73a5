package redistest

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

// WithWrites has the server keep every command that changes something, synced before each answer, so that Writes can tell them.
func WithWrites() Option {
	return func(s *settings) {
		WithAOF("always")(s)
		WithConfig("auto-aof-rewrite-percentage", "0")(s) // else it forgets how it came to what it has
	}
}

// Writes returns every command that changed something since the server was started first, in order and as its append-only file has them: a script as what it did between MULTI and EXEC, BLPOP as LPOP,
// and what changed nothing not at all. What a server that was killed did without keeping it is not among them, nor was it answered. The server must have been started WithWrites.
func (s *Server) Writes() [][]string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		s.t.Fatalf("there should be one file of commands: %q, %v", files, err)
	}
	file, err := os.Open(files[0])
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	var all [][]string
	for in := bufio.NewReader(file); ; {
		command, err := readCommand(in)
		switch {
		case errors.Is(err, io.EOF): // of a server that was killed the last may be cut off
			return all
		case err != nil:
			s.t.Fatalf("command %d of %s: %v", len(all), files[0], err)
		}
		all = append(all, command)
	}
}

// readCommand reads one command as clients send it.
func readCommand(in *bufio.Reader) ([]string, error) {
	words, err := readLength(in, '*')
	if err != nil {
		return nil, err
	}
	command := make([]string, words)
	for n := range command {
		length, err := readLength(in, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, length+len("\r\n"))
		if _, err := io.ReadFull(in, text); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return nil, err
		}
		command[n] = string(text[:length])
	}
	return command, nil
}

// readLength reads a line such as "*3".
func readLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	text := strings.TrimSuffix(line, "\r\n")
	if text == "" || text[0] != kind {
		return 0, fmt.Errorf("the line is %q, should begin with %c", text, kind)
	}
	return strconv.Atoi(text[1:])
}
