package storage_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const lockHolderDir = "BELFRY_TEST_LOCK_HOLDER_DIR"

// TestMain lets the test binary be the process that holds a lock or writes until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDirEnv); dir != "" {
		fmt.Println(writeUntilKilled(dir))
		os.Exit(1)
	}
	dir := os.Getenv(lockHolderDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := disk.Lock(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // ends with the parent
}

func TestLockNamesTheHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "belfry-data")
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), lockHolderDir+"="+dir)
	_, err := holder.StdinPipe() // open for as long as this process wants the holder to live
	must(t, err)
	stdout, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("holder said %q, %v", line, err)
	}
	_, err = disk.Lock(dir)
	var locked *disk.LockedError
	if !errors.As(err, &locked) || locked.PID != holder.Process.Pid || locked.Dir != dir {
		t.Errorf("second process: %v, want pid %d", err, holder.Process.Pid)
	} else if !strings.Contains(err.Error(), fmt.Sprint(holder.Process.Pid)) {
		t.Errorf("message %q does not name the pid", err)
	}
	// A killed holder leaves its file and pid, and no lock.
	must(t, holder.Process.Kill())
	_ = holder.Wait() // killed
	l, err := disk.Lock(dir)
	must(t, err)
	if _, err := disk.Lock(dir); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("twice in one process: %v", err)
	}
	must(t, l.Close())
	l, err = disk.Lock(dir)
	must(t, err)
	must(t, l.Close())
}

func TestLockErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := disk.Lock(file); err == nil {
		t.Error("a file was locked as a directory")
	}
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "LOCK"), 0o700))
	if _, err := disk.Lock(dir); err == nil {
		t.Error("a directory was taken for the lock file")
	}
	if got := (&disk.LockedError{Dir: "d"}).Error(); !strings.Contains(got, "another process") {
		t.Errorf("without pid: %q", got)
	}
}

func TestMakeDirSyncsTheParents(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/", Err: fs.ErrPermission}
	tests := []struct {
		name, dir string
		answer    error // to each sync
		want      []string
		wantErr   bool
	}{
		{"all made", "/a/b/c/", nil, []string{"/a/b", "/a", "/"}, false},
		{"below what exists", "/data/x/y", nil, []string{"/data/x", "/data"}, false},
		{"exists", "/data", nil, []string{"/"}, false},
		{"exists in a closed directory", "/data", denied, []string{"/"}, false},
		{"exists on a broken disk", "/data", diskfault.Broken(diskfault.Op{}), []string{"/"}, true},
		{"made in a closed directory", "/data/x", denied, []string{"/data"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDisk()
			var synced []string
			d.SetHook(func(o diskfault.Op) error {
				if o.Kind == diskfault.OpSyncDir {
					synced = append(synced, o.Path)
					return tt.answer
				}
				return nil
			})
			err := disk.MakeDir(d, tt.dir)
			if (err != nil) != tt.wantErr || !errors.Is(err, tt.answer) && tt.wantErr || !slices.Equal(synced, tt.want) {
				t.Errorf("synced %q, %v, want %q", synced, err, tt.want)
			}
			if _, err := d.ReadDir(tt.dir); err != nil {
				t.Errorf("the directory: %v", err)
			}
		})
	}
}
