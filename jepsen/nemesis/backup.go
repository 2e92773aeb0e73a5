package nemesis

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// backupMax bounds each command of a backup: only what hangs takes that long.
const backupMax = 2 * time.Minute

// backup makes a backup through one node while clients work, reads it, and restores it into a new server. The cluster is whole, so no failure is excused.
func backup(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	url, err := s.Network.ClientURL(lab.Harness, n.Name)
	if err != nil {
		return "", nil, err
	}
	dir := filepath.Join(s.Dir, "backups", fmt.Sprintf("%s-%d", n.Name, s.Now()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("making a directory for a backup: %w", err)
	}
	heal := background(context.WithoutCancel(ctx), func(context.Context) error { return s.backUpAndRestore(ctx, url, dir) })
	return "a backup through " + n.Name + " restored elsewhere", func(ctx context.Context) error {
		return errors.Join(heal(ctx), os.RemoveAll(dir))
	}, nil
}

// contents says what is in a backup, or what was restored.
type contents struct {
	Jobs      json.Number `json:"jobs"`
	Queues    json.Number `json:"queues"`
	ClusterID string      `json:"clusterId"`
}

// backUpAndRestore makes a backup, reads it again, and restores it.
func (s *Scene) backUpAndRestore(ctx context.Context, url, dir string) error {
	file := filepath.Join(dir, "belfry.backup")
	var made, read, restored contents
	if err := s.belfry(ctx, &made, "backup", file, "--server", url); err != nil {
		return err
	}
	if err := s.belfry(ctx, &read, "restore", file, "--check"); err != nil {
		return err
	}
	fresh, stop, err := s.freshServer(dir)
	if err != nil {
		return err
	}
	err = errors.Join(s.belfry(ctx, &restored, "restore", file, "--server", fresh), stop())
	if err != nil {
		return err
	}
	if made != read || made != restored {
		return fmt.Errorf("a backup was made of %+v, has %+v, and restored %+v", made, read, restored)
	}
	count, err := made.Jobs.Int64()
	if err != nil {
		return fmt.Errorf("reading how many jobs a backup has: %w", err)
	}
	s.Count("backups that were restored", 1)
	s.Count("jobs in backups that were restored", count)
	return nil
}

// belfry runs a command of the lab's program and reads its answer.
func (s *Scene) belfry(ctx context.Context, answer any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, backupMax)
	defer cancel()
	c := exec.CommandContext(ctx, s.Lab.Program(), append(args, "-o", "json")...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("belfry %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("reading what belfry %s says: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// freshServer starts a server that has nothing to do with the lab, and returns where it serves and what ends it.
func (s *Scene) freshServer(dir string) (url string, stop func() error, err error) {
	//nolint:noctx // it lives until it is stopped
	c := exec.Command(s.Lab.Program(), "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--shards", "3", "--print-addresses")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("starting a server for a backup: %w", err)
	}
	if err := c.Start(); err != nil {
		return "", nil, fmt.Errorf("starting a server for a backup: %w", err)
	}
	kill := time.AfterFunc(backupMax, func() { _ = c.Process.Kill() }) // or it has ended
	stop = func() error {
		kill.Stop()
		_ = c.Process.Signal(syscall.SIGTERM) // or it has ended, which Wait says
		kill.Reset(backupMax)
		defer kill.Stop()
		if err := c.Wait(); err != nil {
			return fmt.Errorf("the server into which a backup was restored: %w: %s", err, bytes.TrimSpace(said.Bytes()))
		}
		return nil
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var at struct {
		Listen string `json:"listen"`
	}
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("the server into which a backup is to be restored: %w", err), stop())
	}
	return "http://" + at.Listen, stop, nil
}
