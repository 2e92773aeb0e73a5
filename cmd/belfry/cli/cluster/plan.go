package cluster

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/fsm/store"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/admit"
)

// capacity is what is to be held, and by how many nodes.
type capacity struct {
	jobs               countFlag
	body, id           int
	nodes, factor      int
	partitions, shards int
}

// planned is what that takes.
type planned struct {
	BytesPerJob        uint64 `json:"bytesPerJob"`
	BytesPerJobInUse   uint64 `json:"bytesPerJobUntilEnded"`
	JobsPerNode        uint64 `json:"jobsPerNode"`
	UsedBytesPerNode   uint64 `json:"usedBytesPerNode"`
	MemoryBytesPerNode uint64 `json:"memoryBytesPerNode"`
	DiskBytesPerNode   uint64 `json:"diskBytesPerNode"`
}

func (a verbs) planCommand() *cobra.Command {
	p := &capacity{}
	c := &cobra.Command{
		Use:   "plan --jobs NUMBER",
		Short: "Say how much memory and disk a number of jobs takes",
		Long: `
Plan says what the nodes of a cluster need to hold so many jobs at one time: memory, as the limit of
the process or its container, and disk. It asks no server. Jobs whose ids the client chose cost
more, for they are remembered after they have ended.`,
		Example: "  belfry plan --jobs 50M --body 200\n  belfry plan --jobs 2M --body 1000 --id 36 --nodes 5",
		Args:    cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if err := p.check(); err != nil {
				return err
			}
			v := p.plan()
			return a.ShowValue(v, func(w io.Writer) { renderPlan(w, p, v) })
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Var(&p.jobs, flag.Jobs, "how many jobs are held at one time, such as 500000, 300k or 50M")
	flags.IntVar(&p.body, flag.Body, 200, "bytes of a body, with headers")
	flags.IntVar(&p.id, flag.ID, 0, "bytes of an id that the client chooses; 0 for ids that the server makes")
	flags.IntVar(&p.nodes, flag.Nodes, 3, "nodes of the cluster")
	flags.IntVar(&p.factor, flag.ReplicationFactor, 3, "nodes that hold each job")
	flags.IntVar(&p.partitions, flag.Partitions, 1,
		"partitions of all queues together that hold most of the jobs: a snapshot of the fullest shard may copy a part of it")
	flags.IntVar(&p.shards, flag.Shards, node.DefaultShards, "shards of the cluster")
	return a.OutputFlag(c)
}

// check refuses what nothing can be planned for.
func (p *capacity) check() error {
	for _, f := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"body", p.body, 0, 1 << 20}, {"id", p.id, 0, 256}, {"nodes", p.nodes, 1, 1000},
		{"replication-factor", p.factor, 1, 7},
		{"partitions", p.partitions, 1, 1 << 20}, {"shards", p.shards, 1, node.ShardsMax},
	} {
		if f.value < f.least || f.value > f.most {
			return cli.Usagef("--%s: have %d, want %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if p.jobs.n == 0 {
		return cli.Usagef("--jobs is missing: how many jobs are held at one time, such as 50M")
	}
	return nil
}

// plan returns what the jobs take.
func (p *capacity) plan() planned {
	const (
		// recordBytes is about what a snapshot has for a job besides body and id; snapshotsHeld are the
		// two that are kept and the one being written, and as much log again as a snapshot is large, and
		// half of that until the next is ready.
		recordBytes, snapshotsHeld = 40, 4.5
		diskLeast                  = 1 << 30
	)
	each := store.JobMemory(p.body, p.id)
	copies := uint64(min(p.factor, p.nodes))
	v := planned{BytesPerJob: each.Held, BytesPerJobInUse: each.Held + each.Promised}
	v.JobsPerNode = (p.jobs.n*copies + uint64(p.nodes) - 1) / uint64(p.nodes)
	fullest := v.JobsPerNode / uint64(min(p.partitions, p.shards))
	v.UsedBytesPerNode = v.JobsPerNode*v.BytesPerJobInUse + fullest*each.CopyOnWrite
	const round = 64 << 20
	v.MemoryBytesPerNode = (admit.MemoryFor(v.UsedBytesPerNode) + round - 1) / round * round
	v.DiskBytesPerNode = uint64(snapshotsHeld*float64(v.JobsPerNode)*float64(p.body+p.id+recordBytes)) + diskLeast
	return v
}

func renderPlan(w io.Writer, p *capacity, v planned) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "jobs\t%s, each on %s of %d\n", render.Grouped(p.jobs.n), render.Count(min(p.factor, p.nodes), "node"),
		p.nodes)
	fmt.Fprintf(t, "each job\t%s now, %s until it has ended and is forgotten\n", render.Count(v.BytesPerJob, "byte"),
		render.Count(v.BytesPerJobInUse, "byte"))
	fmt.Fprintf(t, "each node\t%s, which take %s\n", render.Count(v.JobsPerNode, "job"), render.Size(v.UsedBytesPerNode))
	fmt.Fprintf(t, "memory of each node\t%s: --memory, or the limit of its container\n", render.Size(v.MemoryBytesPerNode))
	fmt.Fprintf(t, "disk of each node\t%s\n", render.Size(v.DiskBytesPerNode))
	_ = t.Flush() // into memory
}

// countFlag is a flag that takes a number, which may end with k, M or G.
type countFlag struct {
	n    uint64
	text string
}

func (f *countFlag) String() string { return f.text }

// Type names the value in the help.
func (f *countFlag) Type() string { return "number" }

// Set reads a value.
func (f *countFlag) Set(text string) error {
	digits, factor := text, 1.0
	if n := len(text); n > 0 {
		if power := strings.IndexByte("kMG", text[n-1]); power >= 0 {
			digits, factor = text[:n-1], math.Pow(1000, float64(power+1))
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || strings.Trim(digits, "0123456789.") != "" || n*factor < 1 || n*factor > 1e12 {
		return errors.New("want a number of jobs such as 500000, 300k or 50M, at most 1000G")
	}
	f.n, f.text = uint64(n*factor), text
	return nil
}
