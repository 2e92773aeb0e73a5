package tokens

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// rootMax bounds the tokens of a file.
const rootMax = 64

// FormatRoot returns the line of a file of root tokens.
func FormatRoot(id string, hash Hash) string { return id + " " + string(hash) + "\n" }

// ReadRootFile reads a file of root tokens: ID and hash, one a line; what follows # is for people.
// They may do everything, and work while the cluster has no catalog. A file without any is an
// error.
func ReadRootFile(name string) (all []Record, err error) {
	file, err := os.Open(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("opening the root tokens: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if all, err = readRoots(file); err != nil {
		return nil, fmt.Errorf("reading the root tokens in %s: %w", name, err)
	}
	return all, nil
}

func readRoots(r io.Reader) (all []Record, err error) {
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) == 2 {
			fields[1] = strings.ToLower(fields[1])
		}
		if len(fields) != 2 || !ValidID(fields[0]) || !Hash(fields[1]).Valid() {
			return nil, fmt.Errorf("line %d is not the id and the SHA-256 of a token, as 'belfry token root' makes it", number)
		}
		if len(all) == rootMax {
			return nil, fmt.Errorf("there are more than %d", rootMax)
		}
		all = append(all, Record{ID: fields[0], Hash: Hash(fields[1]), About: "root",
			Scopes: Scopes{{Actions: []Action{Admin}, Queues: All}}})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("there is none")
	}
	return all, nil
}
