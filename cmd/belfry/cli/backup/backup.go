// Package backup has the commands that write a backup to a file and send it back.
package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/fsm/backup"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Summary is what is said of a backup, as the file itself tells.
type Summary struct {
	File      string    `json:"file,omitempty"`
	ClusterID string    `json:"clusterId"`
	Time      time.Time `json:"time"`
	Shards    uint64    `json:"shards"`
	Queues    uint64    `json:"queues"`
	Jobs      uint64    `json:"jobs"`
	// Remembered are the ids of ended jobs.
	Remembered uint64 `json:"remembered"`
	Bytes      int64  `json:"bytes"`
}

func summaryOf(file string, in *backup.Reader) Summary {
	h, t := in.Header(), in.Totals()
	return Summary{
		File: file, ClusterID: h.ClusterID, Time: time.Unix(0, int64(h.Time)).UTC(), Shards: t.Shards, Queues: t.Queues,
		Jobs:       t.Jobs,
		Remembered: t.Tombstones, Bytes: in.Offset(),
	}
}

// render writes the summary as a sentence that begins with what was done.
func (b *Summary) render(w io.Writer, done string) {
	fmt.Fprintf(w, "%s %s in %s of queues and %s, and %s of ended jobs; from cluster %s at %s\n", done,
		render.Count(b.Jobs, "job"), render.Count(b.Queues, "partition"),
		render.Count(b.Shards, "shard"), render.Count(b.Remembered, "id"), b.ClusterID, b.Time.Format(time.RFC3339))
}

// verbs are the commands of backups.
type verbs struct{ *cli.App }

// Commands returns `backup` and `restore`.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.backupCommand(), v.restoreCommand()}
}

func (a verbs) backupCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of all queues and jobs",
		Long: `
Backup writes every queue, job, remembered id and quota of the cluster into a file, with checksums,
while it goes on. Each shard is captured at one moment after the command began; there is no order
between shards. FILE appears when the backup is complete, checked and on the disk, never before. A
file that exists is not overwritten. With - the backup goes to standard output; it is whole if the
command exits with 0, and 'belfry restore' refuses it if it is not.

What is not in it: tokens, settings of the cluster, and requests remembered for their repetition and
leases that ended, which matter for minutes only.`,
		Example: "  belfry backup belfry-$(date +%F).backup\n  belfry backup - | zstd > belfry.backup.zst",
		Args:    cli.Arguments(1, 1, "FILE"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		summary, err := a.backUp(c.Context(), conn, args[0])
		if err != nil {
			return a.Describe(c.Context(), err)
		}
		if args[0] == "-" {
			summary.render(a.Err, "wrote")
			return nil
		}
		return a.ShowValue(summary, func(w io.Writer) { summary.render(w, "wrote "+args[0]+":") })
	}
	return a.ClientFlags(c)
}

// backUp writes a backup to a file, or to standard output.
func (a verbs) backUp(ctx context.Context, conn *cli.Connection, path string) (Summary, error) {
	if path == "-" {
		if a.OutTerminal {
			return Summary{}, cli.Usagef("a backup is no text: send it to a file or into a pipe")
		}
		return a.receiveBackup(ctx, conn, a.Out)
	}
	exists := func() error { return cli.ExitWith(cli.CodeConflict, path+" exists; a backup overwrites nothing") }
	if _, err := os.Lstat(path); err == nil {
		return Summary{}, exists()
	}
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
	if err != nil {
		return Summary{}, fmt.Errorf("making the file: %w", err)
	}
	defer func() { _ = os.Remove(part.Name()) }() // its other name stays
	summary, err := a.receiveBackup(ctx, conn, part)
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return Summary{}, err
	}
	// A link, unlike a renaming, does not replace what came meanwhile.
	if err := os.Link(part.Name(), path); errors.Is(err, fs.ErrExist) {
		return Summary{}, exists()
	} else if err != nil {
		return Summary{}, fmt.Errorf("naming the file: %w", err)
	}
	summary.File = path
	return summary, syncDirectory(filepath.Dir(path))
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the person names the file in it
	if err != nil {
		return fmt.Errorf("opening the directory of the file: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// receiveBackup writes a backup to w and checks it on the way as a restore would.
func (a verbs) receiveBackup(ctx context.Context, conn *cli.Connection, w io.Writer) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.Admin.Backup(ctx, &belfryv1.BackupRequest{})
	if err != nil {
		return Summary{}, err
	}
	defer func() { _ = stream.Close() }()
	bar := cli.NewProgress(a.System, 0)
	defer bar.End()
	in, err := backup.NewReader(io.TeeReader(&backupStream{stream: stream, bar: bar}, w))
	if refusal, ok := errors.AsType[*connect.Error](err); ok {
		return Summary{}, refusal // no byte of a backup came, and so its reader has nothing to say
	}
	if err != nil {
		return Summary{}, err
	}
	if err := readOut(in); err != nil {
		return Summary{}, err
	}
	return summaryOf("", in), nil
}

// readOut reads a backup to its end.
func readOut(in *backup.Reader) error {
	for {
		if _, err := in.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// backupStream reads the bytes of a backup that is being received.
type backupStream struct {
	stream *connect.ServerStreamForClient[belfryv1.BackupResponse]
	bar    *cli.Progress
	data   []byte
}

// Read implements io.Reader.
func (b *backupStream) Read(p []byte) (int, error) {
	for len(b.data) == 0 {
		if !b.stream.Receive() {
			if err := b.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		m := b.stream.Msg()
		b.data, b.bar.Total = m.Data, int64(m.JobsExpected) //nolint:gosec // a number of jobs
		b.bar.Update(m.Jobs, int64(m.Jobs))                 //nolint:gosec // as above
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

// newCheckedBackup reads a backup to its end.
func newCheckedBackup(r io.Reader) (*backup.Reader, error) {
	in, err := backup.NewReader(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return nil, err
	}
	return in, readOut(in)
}

// openBackup opens a backup to be restored. A file is read once to its end, so that a damaged one
// is refused before anything is done, also as standard input. A pipe can only be checked while it is
// restored.
func (a verbs) openBackup(path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		file, ok := a.In.(*os.File)
		if !ok {
			return io.NopCloser(a.In), 0, nil
		}
		return a.checkedFile(path, file)
	}
	file, err := os.Open(path) //nolint:gosec // the person names the file
	if err != nil {
		return nil, 0, cli.Usagef("%s", err)
	}
	return a.checkedFile(path, file)
}

// checkedFile returns a file and its size once the backup in it has been read to its end; a pipe is
// not read, and has size 0.
func (a verbs) checkedFile(path string, file *os.File) (io.ReadCloser, int64, error) {
	stat, err := file.Stat()
	if err != nil || !stat.Mode().IsRegular() {
		return file, 0, err // a pipe
	}
	begin, err := file.Seek(0, io.SeekCurrent) // an input may have been read in part
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	size := stat.Size() - begin
	if err := a.checkBackup(path, file, size); err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	_, err = file.Seek(begin, io.SeekStart)
	return file, size, err
}

// checkBackup reads a backup to its end.
func (a verbs) checkBackup(path string, file io.Reader, size int64) error {
	bar := cli.NewProgress(a.System, size)
	defer bar.End()
	in, err := backup.NewReader(bufio.NewReaderSize(file, 1<<20))
	for err == nil {
		if _, err = in.Next(); err == nil {
			bar.Update(in.Totals().Jobs, in.Offset())
		}
	}
	if !errors.Is(err, io.EOF) {
		return backupError(path, fmt.Errorf("%w; nothing was restored", err))
	}
	return nil
}

// backupError says what is wrong with a file; of one that never was a backup, just that.
func backupError(path string, err error) error {
	if errors.Is(err, backup.ErrNoBackup) {
		return cli.ExitWith(cli.CodeError, path+": this is no backup of Belfry")
	}
	return cli.ExitWith(cli.CodeError, fmt.Sprintf("%s: %s", path, err))
}
