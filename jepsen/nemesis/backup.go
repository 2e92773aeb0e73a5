package nemesis

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/nemesis/backupdiff"
)

// backupMax bounds each command of a backup: only what hangs takes that long.
const backupMax = 2 * time.Minute

// takeBackup makes a backup through one node while clients work, reads it, and restores it into a
// new server, which has an authority and a root token of its own if the cluster is secured. The
// cluster is whole, so no failure is excused.
func takeBackup(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyoneOfWhole(ctx)
	if err != nil {
		return "", nil, err
	}
	url, err := s.Lab.URL(lab.Harness, n.Name)
	if err != nil {
		return "", nil, err
	}
	dir := filepath.Join(s.Dir, "backups", fmt.Sprintf("%s-%d", n.Name, s.Now()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("making a directory for a backup: %w", err)
	}
	heal := background(ctx, func(context.Context) error {
		return s.backUpAndRestore(ctx, &place{url, s.Lab.Secrets()}, dir)
	})
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

// place is where a command goes, and with what it finds its way there; secrets is nil where none
// are asked for.
type place struct {
	url     string
	secrets *lab.Secrets
}

// backUpAndRestore makes a backup, reads it again, and restores it.
func (s *Scene) backUpAndRestore(ctx context.Context, from *place, dir string) error {
	file := filepath.Join(dir, "belfry.backup")
	var made, read, restored contents
	if err := s.belfry(ctx, from, &made, "backup", file); err != nil {
		return err
	}
	if err := s.belfry(ctx, nil, &read, "restore", file, "--check"); err != nil {
		return err
	}
	fresh, stop, err := s.freshServer(dir)
	if err != nil {
		return err
	}
	again := filepath.Join(dir, "restored.backup")
	err = s.belfry(ctx, fresh, &restored, "restore", file)
	if err == nil {
		err = errors.Join(s.belfry(ctx, fresh, &contents{}, "backup", again), s.withoutTokens(ctx, from, fresh))
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if made != read || made != restored {
		return fmt.Errorf("a backup was made of %+v, has %+v, and restored %+v", made, read, restored)
	}
	before, err := backupdiff.Read(file)
	if err != nil {
		return err
	}
	after, err := backupdiff.Read(again)
	if err != nil {
		return err
	}
	if err := before.Restored(after); err != nil {
		return err
	}
	s.Count("backups that were restored", 1)
	s.Count("jobs in backups that were restored", int64(before.Jobs()))
	s.Count("queues in backups that were restored, by partition", int64(before.Partitions()))
	s.Count("quotas in backups that were restored", int64(before.Namespaces()))
	return nil
}

// withoutTokens checks that a restore into a secured cluster has brought no tokens, and that the
// root token of the backed-up cluster is refused.
func (s *Scene) withoutTokens(ctx context.Context, from, to *place) error {
	if to.secrets == nil {
		return nil
	}
	var had, has struct {
		Tokens []json.RawMessage `json:"tokens"`
	}
	if err := errors.Join(s.belfry(ctx, from, &had, "token", "list"),
		s.belfry(ctx, to, &has, "token", "list")); err != nil {
		return err
	}
	if len(has.Tokens) > 0 {
		return fmt.Errorf("a restore brought %d tokens", len(has.Tokens))
	}
	stranger := &http.Client{Transport: s.Lab.Secrets().WithToken(to.secrets.TLS(freshNode)), Timeout: backupMax}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url+"/v1/list-tokens", http.NoBody)
	if err != nil {
		return fmt.Errorf("asking as the root of another cluster: %w", err)
	}
	response, err := stranger.Do(request)
	if err != nil {
		return fmt.Errorf("asking as the root of another cluster: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("asking as the root of another cluster: %w", err)
	}
	if response.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("a cluster into which a backup was restored answers who has the root token of the cluster of "+
			"the backup with %s", response.Status)
	}
	s.Count("tokens that a restore did not bring", int64(len(had.Tokens)))
	return nil
}

// belfry runs a command of the lab's program and reads its answer. at is nil for one that asks no
// server.
func (s *Scene) belfry(ctx context.Context, at *place, answer any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, backupMax)
	defer cancel()
	if at != nil {
		args = append(args, "--server", at.url)
	}
	c := exec.CommandContext(ctx, s.Lab.Program(), append(args, "-o", "json")...)
	if at != nil && at.secrets != nil {
		more, err := at.secrets.Environment()
		if err != nil {
			return err
		}
		c.Env = append(c.Environ(), more...)
	}
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

// freshNode is the name of the server into which a backup is restored.
const freshNode = "fresh"

// freshServer starts a server that has nothing to do with the lab, and returns where it serves and
// what ends it. It is secured if the lab is, by secrets of its own.
func (s *Scene) freshServer(dir string) (at *place, stop func() error, err error) {
	at = &place{}
	args := []string{
		"serve", "--node-id", freshNode, "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--peer-listen",
		"127.0.0.1:0", "--shards", "3", "--print-addresses",
	}
	scheme := "http://"
	if s.Lab.Secrets() != nil {
		if at.secrets, err = lab.NewSecrets(dir, s.Lab.Program()); err != nil {
			return nil, nil, err
		}
		if err := at.secrets.Equip(freshNode); err != nil {
			return nil, nil, err
		}
		scheme, args = "https://", append(args, at.secrets.Flags(freshNode)...)
	}
	c := exec.Command(s.Lab.Program(), args...) //nolint:noctx // it lives until it is stopped
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting a server for a backup: %w", err)
	}
	if err := c.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting a server for a backup: %w", err)
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
	var printed struct {
		Listen string `json:"listen"`
	}
	if err == nil {
		err = json.Unmarshal(line, &printed)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the server into which a backup is to be restored: %w", err), stop())
	}
	at.url = scheme + printed.Listen
	return at, stop, nil
}
