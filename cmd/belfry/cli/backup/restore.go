package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// restoreChunkBytes is the size of a message of a restore; the server takes no larger ones than 1
// MiB.
const restoreChunkBytes = 512 << 10

func (a verbs) restoreCommand() *cobra.Command {
	var overdue string
	var check bool
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Bring a backup into an empty cluster",
		Long: `
Restore brings a backup into a cluster that holds no queue. It may have another number of nodes and
shards than the one the backup was made of, if every queue has at most as many partitions as there
are shards. A file is checked before anything is done; - is standard input, which is checked on the
way.

Until the restore has ended, the cluster does nothing else. If it is interrupted, repeat it with the
same backup and options: it goes on where it stood. Ids, attempts and dead letters stay; a job that
was reserved stays so until its lease ends, and the lease can still be acked. New jobs get serials
above all in the backup. Quotas of namespaces are set as they were. Tokens are not restored: make
them anew with a root token of the new cluster.

--overdue says what becomes of jobs that fell due between the backup and the restore: fire makes
them ready at once, spread=DURATION spaces them over that time, drop ends them as expired. Without
it each queue's own policy counts.`,
		Example: `  belfry restore belfry.backup --overdue spread=10m
  zstd -dc belfry.backup.zst | belfry restore -
  belfry restore belfry.backup --check  # only read it`,
		Args: cli.Arguments(1, 1, "FILE"),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&overdue, flag.Overdue, "", "fire, spread=DURATION or drop")
	flags.BoolVar(&check, flag.Check, false, "read the backup to its end and say what is in it, without a server")
	c.RunE = func(c *cobra.Command, args []string) error {
		policy, err := ParseOverdue(overdue)
		if err != nil {
			return err
		}
		file, size, err := a.openBackup(args[0])
		if err != nil {
			return err
		}
		defer file.Close()
		if check {
			return a.showBackup(args[0], file)
		}
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		response, err := a.sendBackup(c.Context(), conn, &sending{file: file, size: size, overdue: policy})
		if err != nil {
			return a.Describe(c.Context(), refusedBackup(args[0], err))
		}
		return a.Show(response, func(w io.Writer) {
			fmt.Fprintf(w, "restored %s in %s of queues, and %s of ended jobs; from cluster %s at %s\n",
				render.Count(response.Jobs, "job"), render.Count(response.Queues, "partition"),
				render.Count(response.Remembered, "id"), response.ClusterId, response.Time.AsTime().Format(time.RFC3339))
		})
	}
	return a.ClientFlags(c)
}

// ParseOverdue reads the value of --overdue; nil if it is empty.
func ParseOverdue(text string) (*belfryv1.OverduePolicy, error) {
	mode, period, spread := strings.Cut(text, "=")
	switch {
	case text == "":
		return nil, nil //nolint:nilnil // each queue's own policy
	case text == "fire":
		return &belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode_OVERDUE_MODE_FIRE}, nil
	case text == "drop":
		return &belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode_OVERDUE_MODE_DROP}, nil
	case mode == "spread" && spread:
		d, err := time.ParseDuration(period)
		if err != nil || d <= 0 {
			return nil, cli.Usagef("--overdue: %q is no duration such as 10m", period)
		}
		return &belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, Period: durationpb.New(d)}, nil
	default:
		return nil, cli.Usagef("--overdue: want fire, spread=DURATION or drop, have %q", text)
	}
}

// refusedBackup gives a backup that the server refuses the exit code of one that is refused here: no
// flag or argument is wrong. Another error it returns as it is.
func refusedBackup(path string, err error) error {
	if text, ok := cli.InvalidField(err, "data"); ok {
		return cli.ExitWith(cli.CodeError, path+": "+text)
	}
	return err
}

// showBackup says what is in a backup.
func (a verbs) showBackup(path string, file io.Reader) error {
	in, err := newCheckedBackup(file)
	if err != nil {
		return backupError(path, err)
	}
	summary := summaryOf(path, in)
	return a.ShowValue(summary, func(w io.Writer) { summary.render(w, path+" is sound:") })
}

// sending is a backup on its way to a server.
type sending struct {
	file    io.Reader
	size    int64
	overdue *belfryv1.OverduePolicy
}

// sendBackup restores a backup.
func (a verbs) sendBackup(ctx context.Context, conn *cli.Connection, s *sending) (*belfryv1.RestoreResponse, error) {
	stream, err := conn.Admin.Restore(ctx)
	if err != nil {
		return nil, err
	}
	bar := cli.NewProgress(a.System, s.size)
	defer bar.End()
	request := &belfryv1.RestoreRequest{Overdue: s.overdue}
	room := make([]byte, restoreChunkBytes)
	for sent := int64(0); ; {
		n, readErr := io.ReadFull(s.file, room)
		request.Data = room[:n]
		if n > 0 {
			if err := stream.Send(request); errors.Is(err, io.EOF) {
				break // the server has answered
			} else if err != nil {
				return nil, err
			}
			request.Overdue = nil
			sent += int64(n)
			bar.Bytes(sent)
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			return nil, fmt.Errorf("reading the backup: %w", readErr)
		}
	}
	return stream.CloseAndReceive()
}
