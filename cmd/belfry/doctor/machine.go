package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	// entriesMax bounds the files of a data directory that are listed.
	entriesMax = 2000
	// diskLow is the free space below which a disk is said to be nearly full: twice what a server
	// keeps free.
	diskLow = 512 << 20
)

// Machine adds the facts of the machine it runs on and of a data directory there, and notes what
// looks wrong.
func (b *Bundle) Machine(dir string) {
	var s strings.Builder
	fmt.Fprintf(&s, "system %s/%s, %d processors usable, GOMAXPROCS %d\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		runtime.GOMAXPROCS(0))
	b.facts(&s, dir)
	b.Add("machine.txt",
		"kernel, processors, memory, clock source, limits, and the disk of the data directory, of the machine that this "+
			"command ran on", s.String())
	b.Add("data.txt", "names and sizes of the files in the data directory", b.files(dir))
}

// files lists a data directory.
func (b *Bundle) files(dir string) string {
	var s strings.Builder
	entries := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > entriesMax {
			return errors.New("there are more files, which are not listed")
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path) // below it by its making
		fmt.Fprintf(&s, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format("2006-01-02T15:04:05Z"),
			name)
		return nil
	})
	if err != nil {
		b.Miss("the data directory", err)
	}
	return s.String()
}

// line returns the first line of a file, or why there is none.
func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first)
}
