package belfry_test

import (
	"path"
	"slices"
	"strings"
)

// The rules about imports. Imports run one way: cmd → rpc → node → fsm, and what stands beside that
// line stays beside it.
const (
	ruleFolder        = "imports/folder"         // a folder that has no row
	ruleStaleRow      = "imports/stale-row"      // a row whose folder has no Go files, or has two rows
	ruleImport        = "imports/direction"      // an import within the module against the direction
	ruleExternal      = "imports/external"       // a third-party package that this folder has no use for
	ruleTestSupport   = "imports/test-support"   // test support that reaches the binary
	ruleGeneratedCode = "imports/generated-code" // generated code outside rpc/belfry, or other code inside
)

var importRuleNames = []string{ruleFolder, ruleStaleRow, ruleImport, ruleExternal, ruleTestSupport, ruleGeneratedCode}

// An importRow says what one folder may import besides the standard library, or, if its name ends in
// "/...", a family of folders: one folder and all below it. In what it may import, "x" names one
// package and "x/..." also those below it; neither covers test support unless it is named itself.
type importRow struct {
	dir      string
	may      []string // packages of this module, from its root
	testMay  []string // packages of this module that only its tests may import, besides may
	external []string // third-party packages, by prefix of whole path elements
	reason   string
}

// importTable lists the folders. Each has a row of its own, as tight as its code allows. A folder
// without one is refused, also below a folder that has one, so a new package must be thought about.
var importTable = []importRow{
	{
		dir:    ".",
		reason: "the root holds no code",
	},
	{
		dir:    "cron",
		reason: "when a schedule fires is calculated from values alone, for whoever asks",
	},
	{
		dir:    "cron/calendar",
		may:    []string{"cron", "fsm", "fsm/schedules"},
		reason: "the calendars of package cron for the schedules of a shard",
	},
	{
		dir:     "fsm",
		testMay: []string{"fsm/fsmtest"},
		reason:  "the vocabulary of a shard is below all that has to do with one",
	},
	{
		dir:     "fsm/codec",
		may:     []string{"fsm"},
		testMay: []string{"fsm/fsmtest"},
		reason:  "bytes and values: what becomes of them is the machine's",
	},
	{
		dir:    "fsm/digest",
		may:    []string{"fsm", "fsm/codec"},
		reason: "a hash knows the record that it is of, and nothing that holds records",
	},
	{
		dir:    "fsm/bulk",
		may:    []string{"fsm"},
		reason: "a task is what is asked of shards, without a shard or a call",
	},
	{
		dir:    "fsm/backup",
		may:    []string{"fsm", "fsm/codec"},
		reason: "a backup is read and written without a machine",
	},
	{
		dir:     "fsm/table",
		testMay: []string{"fsm/digest"},
		reason:  "indexes by hashes: what the hash is of is the caller's",
	},
	{
		dir:    "fsm/store",
		may:    []string{"fsm", "fsm/codec", "fsm/digest", "fsm/table"},
		reason: "records and how they are found; the rules are the machine's",
	},
	{
		dir:    "fsm/orders",
		may:    []string{"fsm", "fsm/listing", "fsm/rule", "fsm/store"},
		reason: "the jobs of a queue by state: what becomes of them is the machine's",
	},
	{
		dir:    "fsm/remembered",
		may:    []string{"fsm", "fsm/codec", "fsm/digest", "fsm/store"},
		reason: "requests and acked leases: what is remembered is the machine's",
	},
	{
		dir:    "fsm/activity",
		may:    []string{"fsm"},
		reason: "figures of counters and times: what becomes of jobs is the machine's",
	},
	{
		dir:    "fsm/usage",
		may:    []string{"fsm"},
		reason: "sums of counts by the names of queues: who may use how much is the leader's",
	},
	{
		dir:      "fsm/agenda",
		may:      []string{"fsm"},
		external: []string{"github.com/google/btree"},
		reason:   "an order of times: what is due is the machine's",
	},
	{
		dir:    "fsm/duecounts",
		may:    []string{"fsm", "fsm/digest"},
		reason: "numbers of jobs by times: which jobs are delayed is the machine's",
	},
	{
		dir:    "fsm/rule",
		may:    []string{"fsm"},
		reason: "functions of jobs, settings and times; the model must not share them",
	},
	{
		dir:    "fsm/keys",
		may:    []string{"fsm", "fsm/store"},
		reason: "which key is next: what becomes of jobs is the machine's",
	},
	{
		dir:      "fsm/schedules",
		may:      []string{"fsm", "fsm/codec", "fsm/store"},
		external: []string{"github.com/google/btree"},
		reason:   "rules of schedules: it reads no calendar, and the machine puts the jobs",
	},
	{
		dir:    "fsm/listing",
		may:    []string{"fsm", "fsm/store"},
		reason: "keys of orders: in which orders the jobs of a list are is the machine's",
	},
	{
		dir:    "fsm/snapshot",
		may:    []string{"fsm", "fsm/backup", "fsm/codec", "fsm/store"},
		reason: "a snapshot is written from pinned records, without the machine",
	},
	{
		dir: "fsm/machine",
		may: []string{
			"fsm", "fsm/activity", "fsm/agenda", "fsm/backup", "fsm/codec", "fsm/digest", "fsm/duecounts", "fsm/keys",
			"fsm/listing", "fsm/orders", "fsm/remembered", "fsm/rule", "fsm/schedules", "fsm/snapshot", "fsm/store", "fsm/usage",
		},
		testMay:  []string{"fsm/fsmtest", "fsm/model", "fsm/model/ledger"},
		external: []string{"github.com/google/btree"},
		reason:   "the machine is pure: what it does not import it cannot ask",
	},
	{
		dir:    "fsm/fsmtest",
		may:    []string{"fsm"},
		reason: "values for the tests of every room of fsm, so it is above the vocabulary only",
	},
	{
		dir:    "fsm/model",
		may:    []string{"fsm", "fsm/backup", "fsm/codec", "fsm/digest"},
		reason: "the reference model is read next to the machine and shares its vocabulary, records and hashes only",
	},
	{
		dir:    "fsm/model/ledger",
		may:    []string{"fsm", "fsm/machine"},
		reason: "the judge of a log shares with the machine only the words of commands and results",
	},
	{
		dir: "node",
		may: []string{
			"fsm", "fsm/codec", "fsm/machine", "fsm/schedules", "fsm/snapshot", "node/admit", "node/clock", "node/conditions",
			"node/founding", "node/histogram", "node/identity", "node/longpoll", "node/measure", "node/outcome",
			"node/peer", "node/propose", "node/raftgroup", "node/recovery", "node/scheduler", "node/storage",
			"node/storage/disk", "wakeup",
		},
		testMay: []string{
			"node/clock/clocktest", "node/nodetest", "node/nodetest/pipetest", "node/storage/diskfault",
		},
		external: []string{"github.com/hashicorp/raft"},
		reason:   "the node runs machines; it knows neither the wire nor the cluster",
	},
	{
		dir:      "node/clock",
		may:      []string{"fsm", "wakeup"},
		testMay:  []string{"node/clock/clocktest"},
		external: []string{"golang.org/x/sys"},
		reason:   "time is kept without a shard, a node or a network",
	},
	{
		dir:    "node/clock/clocktest",
		may:    []string{"fsm"},
		reason: "a clock for tests counts in the time of shards, and reads none",
	},
	{
		dir:    "node/admit",
		may:    []string{"fsm", "fsm/codec", "fsm/machine", "node/outcome", "node/storage", "node/storage/disk"},
		reason: "admission asks the machine and the disk, and knows neither proposals nor Raft",
	},
	{
		dir:     "node/storage",
		may:     []string{"node/storage/disk"},
		testMay: []string{"node/storage/diskfault"},
		external: []string{
			"github.com/hashicorp/go-hclog", "github.com/hashicorp/raft", "github.com/hashicorp/raft-boltdb/v2",
			"github.com/hashicorp/raft-wal", "go.etcd.io/bbolt",
		},
		reason: "logs, votes and snapshots are stored for any group, so storage knows neither machines nor shards",
	},
	{
		dir:      "node/storage/disk",
		external: []string{"golang.org/x/sys"},
		reason:   "files are kept whole whatever is in them",
	},
	{
		dir:    "node/storage/diskfault",
		may:    []string{"node/storage/disk"},
		reason: "a disk for tests stands in for the real one, whatever is stored on it",
	},
	{
		dir:    "node/histogram",
		reason: "values are counted for whatever metric",
	},
	{
		dir:    "node/founding",
		may:    []string{"fsm"},
		reason: "a plan is data that nodes exchange",
	},
	{
		dir:     "node/identity",
		may:     []string{"fsm", "node/founding", "node/storage/disk"},
		testMay: []string{"node/storage/diskfault"},
		reason:  "what a directory says of itself is read before any group",
	},
	{
		dir:      "node/peer",
		may:      []string{"access/connlimit", "fsm", "node/founding", "node/outcome"},
		testMay:  []string{"node/clock/clocktest", "node/nodetest/pipetest"},
		external: []string{"github.com/hashicorp/go-hclog", "github.com/hashicorp/raft"},
		reason:   "connections carry what groups and calls say, and know neither",
	},
	{
		dir:    "node/conditions",
		may:    []string{"node/storage/disk"},
		reason: "a condition is judged from measurements, without groups",
	},
	{
		dir: "node/raftgroup",
		may: []string{
			"node/histogram", "node/outcome", "node/peer", "node/storage", "node/storage/disk", "wakeup",
		},
		testMay:  []string{"node/storage/diskfault"},
		external: []string{"github.com/hashicorp/go-hclog", "github.com/hashicorp/raft"},
		reason:   "a Raft group runs any machine, and knows neither shards nor nodes",
	},
	{
		dir:     "node/scheduler",
		may:     []string{"fsm", "fsm/schedules", "node/clock", "node/outcome", "wakeup"},
		testMay: []string{"fsm/codec", "fsm/machine"},
		reason:  "it plans and proposes firings; it knows neither Raft nor the shard",
	},
	{
		dir:     "node/propose",
		may:     []string{"fsm", "fsm/codec", "node/admit", "node/clock", "node/histogram", "node/outcome", "wakeup"},
		testMay: []string{"fsm/machine", "node/storage", "node/storage/disk"},
		reason:  "requests become entries without Raft and without a shard",
	},
	{
		dir:      "node/recovery",
		may:      []string{"node/founding", "node/identity", "node/raftgroup", "node/storage", "node/storage/disk"},
		external: []string{"github.com/hashicorp"},
		reason:   "a recovery works on the files of a stopped node",
	},
	{
		dir:    "node/measure",
		may:    []string{"fsm", "node/admit", "node/histogram", "node/outcome"},
		reason: "counting needs no shard",
	},
	{
		dir:    "node/journal",
		may:    []string{"fsm", "node"},
		reason: "a journal implements what the node offers to record entries, so the node does not know it",
	},
	{
		dir: "node/longpoll",
		may: []string{
			"fsm", "fsm/codec", "fsm/machine", "node/admit", "node/clock", "node/outcome", "node/propose", "wakeup",
		},
		testMay: []string{"node/clock/clocktest", "node/storage", "node/storage/disk"},
		reason:  "calls wait for proposals and jobs, and know neither Raft nor the node",
	},
	{
		dir:    "node/outcome",
		reason: "an error and its outcome mean the same in every room of node, and depend on none",
	},
	{
		dir: "node/nodetest",
		may: []string{"fsm", "node", "node/clock", "node/nodetest/pipetest"},
		testMay: []string{
			"cron", "cron/calendar", "fsm/schedules", "node/peer", "node/storage/disk", "node/storage/diskfault",
		},
		reason: "a cluster of nodes in memory for tests, under the rules of node",
	},
	{
		dir:    "node/nodetest/pipetest",
		reason: "a listener in memory carries any bytes",
	},
	{
		dir: "node/nodetest/soak",
		may: []string{
			"fsm", "fsm/codec", "fsm/machine", "fsm/model/ledger", "fsm/schedules", "node", "node/clock",
			"node/nodetest/pipetest", "node/storage/disk", "node/storage/diskfault",
		},
		reason: "it drives nodes as a program does, breaks their disks, and judges them by their log",
	},
	{
		dir:      "node/nodetest/flips",
		may:      []string{"node/storage", "node/storage/disk", "node/storage/diskfault"},
		testMay:  []string{"fsm", "node", "node/nodetest"},
		external: []string{"github.com/hashicorp/raft"},
		reason:   "damage to files is judged at the stores, and in clusters of nodetest",
	},
	{
		dir: "cluster",
		may: []string{
			"cluster/catalog", "cluster/placement", "cluster/quota", "cluster/routing", "cluster/tasks", "fsm", "node",
			"node/clock", "node/identity", "node/recovery",
		},
		testMay: []string{"cluster/routing/routingtest", "fsm/bulk", "node/peer", "node/storage/diskfault"},
		reason:  "the catalog runs in a group of node; its leader logs Open and Configure, commands of the machine",
	},
	{
		dir:      "cluster/gossip",
		may:      []string{"access/connlimit"},
		testMay:  []string{"cluster/gossip/gossiptest"},
		external: []string{"github.com/hashicorp/memberlist"},
		reason:   "addresses and silence are learned without Raft, and decide nothing",
	},
	{
		dir:    "cluster/gossip/gossiptest",
		may:    []string{"cluster/gossip"},
		reason: "a network in memory implements the transport of gossip, for its tests",
	},
	{
		dir:    "cluster/catalog",
		may:    []string{"fsm", "fsm/bulk", "node", "node/identity", "cluster/quota", "access/tokens", "wakeup"},
		reason: "the catalog knows other nodes and the shards by interfaces; its leader logs the machine's commands",
	},
	{
		dir:    "cluster/placement",
		may:    []string{"fsm", "node", "cluster/catalog"},
		reason: "a plan is pure; the placer knows the nodes and the records by interfaces",
	},
	{
		dir:     "cluster/routing",
		may:     []string{"fsm", "fsm/backup", "fsm/codec", "node", "cluster/catalog", "stream"},
		testMay: []string{"cluster/routing/routingtest"},
		reason:  "calls go to leaders; who should lead is none of their business",
	},
	{
		dir:    "cluster/routing/routingtest",
		may:    []string{"node/nodetest/pipetest"},
		reason: "connections between nodes in memory, for tests",
	},
	{
		dir:     "cluster/tasks",
		may:     []string{"fsm", "fsm/bulk", "node"},
		testMay: []string{"fsm/codec", "fsm/machine", "wakeup"},
		reason:  "who records a task and who carries its steps out come through interfaces",
	},
	{
		dir:    "cluster/quota",
		may:    []string{"node", "wakeup"},
		reason: "the division of quotas is pure; who stores it and who enforces it come through interfaces",
	},
	{
		dir:    "access/certs",
		reason: "certificates and TLS from files: they know nothing of what is said over them",
	},
	{
		dir:    "access/connlimit",
		reason: "the connections that a port holds: it knows nothing of what is said over them",
	},
	{
		dir:    "access/tokens",
		reason: "what a token is and allows: who keeps it and who asks for it are elsewhere",
	},
	{
		dir: "rpc",
		may: []string{
			"access/connlimit", "node", "rpc/admin", "rpc/auth", "rpc/backend", "rpc/beanstalkd", "rpc/belfry/...", "rpc/check",
			"rpc/codec", "rpc/drain", "rpc/fault", "rpc/http1", "rpc/inbound", "rpc/lmstfy", "rpc/metrics", "rpc/naming",
			"rpc/openapi", "rpc/queue", "rpc/schedule", "rpc/shardcall", "rpc/spelling", "rpc/ui", "rpc/ui/login",
			"rpc/wire", "stream",
		},
		testMay: []string{
			"access/tokens", "cron", "cron/calendar", "fsm", "fsm/backup", "fsm/codec", "fsm/machine", "node/clock",
			"rpc/backend/backendtest",
		},
		external: []string{
			"connectrpc.com", "google.golang.org/protobuf", "google.golang.org/genproto", "github.com/prometheus",
		},
		reason: "rpc sees the cluster through interfaces it declares; the client imports rpc's generated code, not the " +
			"reverse",
	},
	{
		dir:    "rpc/backend",
		may:    []string{"access/tokens", "fsm", "fsm/bulk", "node"},
		reason: "what the handlers require of a node and its cluster: interfaces and their values, and no code",
	},
	{
		dir: "rpc/backend/adapter",
		may: []string{"access/tokens", "cluster/...", "fsm", "fsm/bulk", "node", "rpc/backend", "rpc/belfry/...",
			"rpc/fault"},
		reason: "it adapts cluster to the interfaces of rpc, which do not know each other",
	},
	{
		dir: "rpc/backend/backendtest",
		may: []string{"access/tokens", "fsm", "fsm/bulk", "fsm/codec", "fsm/machine", "node", "rpc/backend",
			"rpc/belfry/...", "rpc/fault", "rpc/shardcall"},
		reason: "a node and a catalog in memory are for the tests of all handlers",
	},
	{
		dir:      "rpc/belfry/...",
		may:      []string{"rpc/belfry/..."},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf"},
		reason:   "generated code is shared by the server and the SDK, so it drags in neither",
	},
	{
		dir:      "rpc/fault",
		may:      []string{"fsm", "node", "rpc/belfry/...", "rpc/wire"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "google.golang.org/genproto"},
		reason:   "an error of the contract knows the machine's codes and the node's errors, and no handler",
	},
	{
		dir:      "rpc/auth",
		may:      []string{"access/tokens", "rpc/belfry/...", "rpc/fault"},
		external: []string{"connectrpc.com", "google.golang.org/protobuf", "github.com/prometheus"},
		reason:   "who may do what is decided without the handlers that ask, and without the catalog that keeps the tokens",
	},
	{
		dir:      "rpc/lmstfy",
		may:      []string{"access/tokens", "rpc/belfry/...", "rpc/fault"},
		external: []string{"google.golang.org/protobuf", "github.com/prometheus"},
		reason:   "another queue's protocol is read and written; what it asks for are calls of the contract",
	},
	{
		dir:      "rpc/metrics",
		may:      []string{"fsm", "node", "rpc/backend", "rpc/wire"},
		external: []string{"github.com/prometheus"},
		reason:   "collectors read a node's measurements and know no handler",
	},
	{
		dir:      "rpc/wire",
		may:      []string{"fsm", "node", "rpc/belfry/...", "rpc/protofield"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "conversions between the machine's values and the contract's need no server",
	},
	{
		dir:      "rpc/naming",
		testMay:  []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "names follow from descriptors alone; the generator of the description runs before there is generated code",
	},
	{
		dir: "rpc/ui",
		may: []string{
			"rpc/belfry/...", "rpc/fault", "rpc/findings", "rpc/ui/chart", "rpc/ui/export", "rpc/ui/fallback", "rpc/ui/finder",
			"rpc/ui/form", "rpc/ui/format", "rpc/ui/health", "rpc/ui/inputs", "rpc/ui/keys", "rpc/ui/login", "rpc/ui/look",
			"rpc/ui/many", "rpc/ui/markup", "rpc/ui/outcome", "rpc/ui/payload", "rpc/ui/recent", "rpc/ui/schedules",
			"rpc/ui/selection", "rpc/ui/sums",
		},
		external: []string{"connectrpc.com", "google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "pages make calls of the public API, so they see nothing of the server behind it",
	},
	{
		dir:      "rpc/ui/chart",
		may:      []string{"rpc/belfry/...", "rpc/ui/format"},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "a chart draws what an answer has, and asks for nothing",
	},
	{
		dir:      "rpc/ui/format",
		testMay:  []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "texts of numbers and times, whatever page shows them",
	},
	{
		dir:      "rpc/ui/health",
		may:      []string{"rpc/belfry/...", "rpc/findings", "rpc/ui/format", "rpc/ui/markup"},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "how a cluster is follows from one answer, whatever page shows it",
	},
	{
		dir:      "rpc/ui/inputs",
		may:      []string{"rpc/ui/form", "rpc/ui/markup", "rpc/ui/outcome"},
		external: []string{"maragu.dev/gomponents"},
		reason:   "an input keeps what was typed, whatever form it is in",
	},
	{
		dir: "rpc/ui/keys",
		may: []string{"rpc/belfry/...", "rpc/ui/form", "rpc/ui/format", "rpc/ui/inputs", "rpc/ui/markup",
			"rpc/ui/outcome", "rpc/ui/payload", "rpc/ui/selection"},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "keys are read and changed by calls; a page of their jobs is one of a selection",
	},
	{
		dir:    "rpc/ui/look",
		may:    []string{"rpc/ui/form"},
		reason: "what a person chose is read as a form is",
	},
	{
		dir:      "rpc/ui/many",
		may:      []string{"rpc/belfry/...", "rpc/fault", "rpc/ui/selection"},
		external: []string{"connectrpc.com", "google.golang.org/protobuf"},
		reason:   "jobs are read and changed by calls, and shown elsewhere; an error says how many were changed",
	},
	{
		dir:      "rpc/ui/markup",
		may:      []string{"rpc/ui/form", "rpc/ui/format", "rpc/ui/payload"},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "the parts of a page know nothing of what they show",
	},
	{
		dir:      "rpc/ui/export",
		may:      []string{"rpc/belfry/...", "rpc/codec", "rpc/ui/selection"},
		external: []string{"connectrpc.com"},
		reason:   "jobs are read by calls, and written in the JSON of the API",
	},
	{
		dir:      "rpc/ui/finder",
		may:      []string{"rpc/belfry/...", "rpc/ui/format", "rpc/ui/markup", "rpc/ui/payload", "rpc/ui/selection"},
		external: []string{"connectrpc.com", "github.com/google/go-cmp", "maragu.dev/gomponents"},
		reason:   "a search is a row of calls and what they found",
	},
	{
		dir:      "rpc/ui/fallback",
		may:      []string{"rpc/belfry/...", "rpc/ui/format"},
		external: []string{"connectrpc.com", "google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "replicas answer any read, whatever page makes it",
	},
	{
		dir:      "rpc/ui/form",
		may:      []string{"rpc/belfry/...", "rpc/wire"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "what was typed becomes messages without a page or a call; durations are read as the API reads them",
	},
	{
		dir:    "rpc/ui/login",
		reason: "a token is sealed without knowing what it allows",
	},
	{
		dir:      "rpc/ui/outcome",
		may:      []string{"rpc/belfry/...", "rpc/fault", "rpc/ui/form", "rpc/ui/format"},
		external: []string{"connectrpc.com"},
		reason:   "what came of an act is told, whatever the act was",
	},
	{
		dir:      "rpc/ui/payload",
		may:      []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "bytes of others are shown, whatever they are of",
	},
	{
		dir:    "rpc/ui/recent",
		reason: "values are kept, whatever they are",
	},
	{
		dir: "rpc/ui/schedules",
		may: []string{"rpc/belfry/...", "rpc/ui/form", "rpc/ui/format", "rpc/ui/inputs", "rpc/ui/markup",
			"rpc/ui/outcome", "rpc/ui/payload", "rpc/wire"},
		external: []string{"connectrpc.com", "google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "schedules are read and changed by calls; durations are written as the API reads them",
	},
	{
		dir: "rpc/ui/selection",
		may: []string{"rpc/belfry/...", "rpc/ui/form", "rpc/ui/format", "rpc/ui/markup",
			"rpc/ui/payload"},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "which jobs a page is about becomes messages and forms without a call",
	},
	{
		dir:      "rpc/ui/sums",
		may:      []string{"rpc/belfry/...", "rpc/ui/format", "rpc/ui/markup"},
		external: []string{"google.golang.org/protobuf", "maragu.dev/gomponents"},
		reason:   "sums are of what was read, whoever read it",
	},
	{
		dir:      "rpc/findings",
		may:      []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "what looks wrong is told from an answer of the API, for a command and a page alike",
	},
	{
		dir:      "rpc/openapi",
		testMay:  []string{"client/belfrytest", "rpc/belfry/...", "rpc/naming"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "the document is a file: what it describes is the generator's",
	},
	{
		dir:      "rpc/openapi/generate",
		may:      []string{"rpc/naming"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "the description comes from the protobuf sources and not from the code generated from them",
	},
	{
		dir: "rpc/admin",
		may: []string{"access/tokens", "fsm", "fsm/backup", "fsm/bulk", "node", "rpc/admin/keys", "rpc/auth", "rpc/backend",
			"rpc/belfry/...", "rpc/check", "rpc/codec", "rpc/drain",
			"rpc/fault", "rpc/inbound", "rpc/naming", "rpc/shardcall", "rpc/spelling", "rpc/wire"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "github.com/prometheus"},
		reason:   "the methods of an administrator need the rooms of the edge, and no server",
	},
	{
		dir: "rpc/admin/keys",
		may: []string{"access/tokens", "fsm", "node", "rpc/belfry/...", "rpc/check", "rpc/codec", "rpc/fault",
			"rpc/shardcall", "rpc/wire"},
		reason: "keys are read and paused in their shards; it knows neither the catalog nor the cluster",
	},
	{
		dir:      "rpc/check",
		may:      []string{"access/tokens", "fsm", "rpc/auth", "rpc/belfry/...", "rpc/fault", "rpc/wire"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "a request is checked against limits and permissions, without the handler that carries it out",
	},
	{
		dir:      "rpc/codec",
		may:      []string{"rpc/belfry/...", "rpc/check", "rpc/fault", "rpc/naming", "rpc/spelling", "rpc/wire"},
		testMay:  []string{"fsm"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf"},
		reason:   "bytes become messages and the reverse: what a message asks for is a method's",
	},
	{
		dir:    "stream",
		reason: "the multiplexer is shared by the server, the SDK and the nodes, so it drags in none of them",
	},
	{
		dir:    "wakeup",
		reason: "a channel knows nothing of what it wakes",
	},
	{
		dir:    "rpc/http1",
		reason: "connections of HTTP/1.1: it knows nothing of what is called over them",
	},
	{
		dir:      "rpc/inbound",
		may:      []string{"rpc/belfry/...", "rpc/check", "rpc/fault", "rpc/wire"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf"},
		reason:   "the bytes of a request are bounded before a codec or a method sees them",
	},
	{
		dir:      "rpc/shardcall",
		may:      []string{"fsm", "node", "rpc/backend", "rpc/belfry/...", "rpc/fault", "rpc/wire"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "calls reach shards through the node's interface; which command is proposed is a method's",
	},
	{
		dir: "rpc/queue",
		may: []string{"access/tokens", "fsm", "fsm/codec", "node", "rpc/auth", "rpc/backend", "rpc/belfry/...", "rpc/check",
			"rpc/codec", "rpc/drain", "rpc/fault", "rpc/inbound", "rpc/shardcall", "rpc/wire", "wakeup"},
		testMay:  []string{"fsm/machine", "rpc/backend/backendtest"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "github.com/prometheus"},
		reason:   "the methods of queues know the interfaces of a node, and no path or socket",
	},
	{
		dir: "rpc/beanstalkd",
		may: []string{"access/connlimit", "access/tokens", "fsm", "rpc/auth", "rpc/beanstalkd/protocol", "rpc/belfry/...",
			"rpc/drain", "rpc/fault", "rpc/queue", "rpc/shardcall", "rpc/wire"},
		testMay:  []string{"cron", "cron/calendar", "node", "rpc", "rpc/backend/backendtest"},
		external: []string{"google.golang.org/protobuf", "github.com/prometheus"},
		reason:   "a front door carries out its commands by the services of the contract, and knows no shard",
	},
	{
		dir:    "rpc/beanstalkd/protocol",
		reason: "the texts of a protocol are read and written without the commands behind them",
	},
	{
		dir: "rpc/schedule",
		may: []string{"access/tokens", "cron", "fsm", "fsm/codec", "fsm/schedules", "node", "rpc/belfry/...", "rpc/check",
			"rpc/codec", "rpc/fault", "rpc/shardcall", "rpc/wire"},
		testMay:  []string{"cron/calendar"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "the methods of schedules know the interfaces of a node and of calendars, and no path or socket",
	},
	{
		dir:    "rpc/drain",
		reason: "a signal knows nothing of what it stops",
	},
	{
		dir:    "rpc/spelling",
		reason: "words are compared whatever they name: the server and the verbs do it alike",
	},
	{
		dir:      "rpc/protofield",
		external: []string{"google.golang.org/protobuf"},
		reason:   "the server and the SDK write fields alike, so it knows no message and drags in neither",
	},
	{
		dir:      "rpc/portcheck",
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "google.golang.org/genproto"},
		reason:   "what answers at an address is told by the SDK too, so the probes of a node come as functions",
	},
	{
		dir:      "rpc/utf8field",
		testMay:  []string{"rpc/belfry/..."},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf"},
		reason:   "the SDK links it, and it looks at any message",
	},
	{
		dir: "client",
		may: []string{"client/admin", "client/internal/batchcodec", "client/internal/batching",
			"client/internal/bearer", "client/internal/calls", "client/internal/coalesce",
			"client/internal/failure", "client/internal/lease", "client/internal/placement", "client/internal/requestid",
			"client/internal/routes", "client/internal/servers", "client/internal/session", "client/internal/tracing",
			"client/internal/transport", "client/internal/values", "client/internal/wire", "client/internal/consume",
			"client/schedule", "rpc/belfry/...", "rpc/portcheck", "rpc/utf8field", "stream"},
		testMay: []string{"access/tokens", "client/belfrytest"},
		external: []string{
			"connectrpc.com/connect", "google.golang.org/protobuf", "google.golang.org/genproto",
			"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/propagation",
			"go.opentelemetry.io/otel/trace",
		},
		reason: "a user of the SDK must not link the server",
	},
	{
		dir:      "client/admin",
		may:      []string{"client/internal/calls", "client/internal/failure", "client/internal/values", "rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "it has types and messages: a service, which the client hands in, has the connections",
	},
	{
		dir:      "client/schedule",
		may:      []string{"client/internal/calls", "client/internal/failure", "client/internal/values", "rpc/belfry/..."},
		testMay:  []string{"client", "client/belfrytest"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "it has types and messages, as client/admin, and the client hands in the service",
	},
	{
		dir: "client/internal/batchcodec",
		may: []string{"client/internal/coalesce", "client/internal/failure", "client/internal/wire", "rpc/belfry/...",
			"rpc/protofield"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "bytes are written and read: who sends them, and who shares a batch, is decided elsewhere",
	},
	{
		dir:    "client/internal/batching",
		reason: "slots, gates and broadcasts need goroutines and a clock, and no call",
	},
	{
		dir:    "client/internal/bearer",
		may:    []string{"access/tokens"},
		reason: "a token is held without a connection",
	},
	{
		dir:    "client/internal/calls",
		may:    []string{"client/internal/failure", "client/internal/placement"},
		reason: "the client hands in what makes a call, so this knows no client",
	},
	{
		dir:    "client/internal/coalesce",
		may:    []string{"client/internal/batching", "client/internal/failure"},
		reason: "who shares a round trip is decided without a server or a message",
	},
	{
		dir:      "client/internal/failure",
		may:      []string{"rpc/belfry/...", "rpc/portcheck"},
		external: []string{"connectrpc.com/connect", "google.golang.org/genproto"},
		reason:   "an error is judged without a connection",
	},
	{
		dir:    "client/internal/lease",
		may:    []string{"wakeup"},
		reason: "leases need a clock, and no client",
	},
	{
		dir:      "client/internal/routes",
		may:      []string{"client/internal/placement", "rpc/belfry/...", "rpc/portcheck"},
		external: []string{"connectrpc.com/connect"},
		reason:   "a table needs no connection: the calls that fill it are the client's",
	},
	{
		dir:    "client/internal/servers",
		may:    []string{"client/internal/failure"},
		reason: "addresses are read and servers picked without a connection",
	},
	{
		dir: "client/internal/session",
		may: []string{"client/internal/bearer", "client/internal/failure", "client/internal/requestid",
			"rpc/portcheck", "stream"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "google.golang.org/genproto"},
		reason:   "a session carries bytes: the messages are the client's",
	},
	{
		dir:    "client/internal/consume",
		may:    []string{"client/internal/failure", "client/internal/lease"},
		reason: "the order of polls, handlers and a stop needs no server: a Queue has the calls",
	},
	{
		dir:    "client/internal/placement",
		reason: "hashes are pure",
	},
	{
		dir:    "client/internal/requestid",
		reason: "ids need a clock and nothing else",
	},
	{
		dir: "client/internal/tracing",
		may: []string{"client/internal/placement", "rpc/belfry/..."},
		external: []string{
			"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes",
			"go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/trace",
		},
		reason: "spans need what a call says of itself, and no client",
	},
	{
		dir:      "client/internal/transport",
		may:      []string{"client/internal/bearer", "client/internal/requestid", "client/internal/session", "rpc/portcheck"},
		external: []string{"connectrpc.com/connect"},
		reason:   "a connection carries calls, and knows none of them",
	},
	{
		dir:      "client/internal/values",
		may:      []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "conversions are pure",
	},
	{
		dir:      "client/internal/wire",
		external: []string{"google.golang.org/protobuf"},
		reason:   "it reads fields of any message",
	},
	{
		dir: "client/belfrytest",
		may: []string{"client", "cluster", "cron", "cron/calendar", "fsm", "fsm/schedules", "node", "node/storage/disk",
			"rpc", "rpc/backend/adapter"},
		testMay:  []string{"client/admin", "client/schedule"},
		external: []string{"github.com/prometheus/client_golang"},
		reason:   "a server for the tests of users; imported by tests only",
	},
	{
		dir: "mirror",
		may: []string{"client", "client/admin", "mirror/pair", "mirror/redisconn", "mirror/redisson"},
		testMay: []string{"client/belfrytest", "mirror/fromlmstfy", "mirror/lmstfy", "mirror/oneway", "mirror/redistest",
			"mirror/redistest/aof", "mirror/redistest/redissontest", "mirror/redistest/sourcetest"},
		external: []string{"github.com/redis/go-redis", "golang.org/x/sync"},
		reason:   "the mirror is a client of Belfry and knows nothing of Raft",
	},
	{
		dir: "mirror/oneway",
		may: []string{"client", "mirror/pair", "mirror/redisconn"},
		testMay: []string{"client/belfrytest", "mirror/fromlmstfy", "mirror/fromyouzan", "mirror/lmstfy", "mirror/youzan",
			"mirror/redistest", "mirror/redistest/sourcetest"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "what imports from other services have in common knows none of them",
	},
	{
		dir:      "mirror/fromlmstfy",
		may:      []string{"client", "mirror/lmstfy", "mirror/oneway", "mirror/pair", "mirror/redisconn"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "an import from one service knows no other, and nothing of Redisson",
	},
	{
		dir:      "mirror/fromyouzan",
		may:      []string{"client", "mirror/oneway", "mirror/pair", "mirror/redisconn", "mirror/youzan"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "an import from one service knows no other, and nothing of Redisson",
	},
	{
		dir:      "mirror/pair",
		may:      []string{"client", "client/admin", "mirror/redisconn"},
		testMay:  []string{"client/belfrytest", "mirror/redistest"},
		external: []string{"github.com/redis/go-redis", "golang.org/x/sync"},
		reason:   "the right to work on two queues does not depend on what is moved between them",
	},
	{
		dir:      "mirror/redisconn",
		testMay:  []string{"mirror/redistest"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "it reaches a Redis of any kind, and knows neither Belfry nor what a mirror does",
	},
	{
		dir:      "mirror/redistest",
		may:      []string{"mirror/redistest/aof"},
		testMay:  []string{"mirror/redistest"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "Redis and stand-ins of other programs, for tests",
	},
	{
		dir:      "mirror/redistest/aof",
		testMay:  []string{"mirror/redistest"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "it reads the log of a Redis without its help; only its tests start one",
	},
	{
		dir:      "mirror/redistest/redissontest",
		testMay:  []string{"mirror/redistest"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "an imitation of Redisson shares no mistake with the mirror, because it shares no code with it",
	},
	{
		dir:      "mirror/redistest/sourcetest",
		external: []string{"github.com/redis/go-redis"},
		reason:   "an imitation of other services shares no code with the imports from them",
	},
	{
		dir:    "mirror/redisson",
		reason: "formats are pure: they are read and written without Redis and without Belfry",
	},
	{
		dir:    "mirror/lmstfy",
		reason: "formats are pure: bytes in, values out",
	},
	{
		dir:    "mirror/youzan",
		reason: "formats are pure: bytes in, values out",
	},
	{
		dir: "jepsen",
		may: []string{
			"jepsen/checker", "jepsen/checker/access", "jepsen/checker/availability", "jepsen/disk", "jepsen/history",
			"jepsen/lab", "jepsen/nemesis", "jepsen/network", "jepsen/planted", "jepsen/redisson", "jepsen/report",
			"jepsen/workload", "node/journal", "rpc/belfry/...",
		},
		testMay:  []string{"node"}, // the entries of made-up journals
		external: []string{"google.golang.org/protobuf"},
		reason: "fault tests talk to real processes, so that they see what users see, and read the journals that those " +
			"leave behind",
	},
	{
		dir:      "jepsen/history",
		may:      []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "a history is calls and answers in the words of the contract, whoever made them",
	},
	{
		dir:      "jepsen/lab",
		may:      []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf", "golang.org/x/sys"},
		reason:   "processes are started, killed and asked how they are, through their ports only",
	},
	{
		dir:    "jepsen/network",
		may:    []string{"wakeup"},
		reason: "a network carries the bytes of any process",
	},
	{
		dir:     "jepsen/planted",
		testMay: []string{"jepsen/nemesis", "jepsen/workload"},
		reason:  "a bug is an edit of a text; only its tests ask whether faults and workloads of its name exist",
	},
	{
		dir:    "jepsen/report",
		reason: "a report is written from values: what they mean is the checker's",
	},
	{
		dir:      "jepsen/workload",
		may:      []string{"jepsen/history", "jepsen/lab", "jepsen/redisson", "rpc/belfry/..."},
		external: []string{"connectrpc.com/connect", "google.golang.org/genproto", "google.golang.org/protobuf"},
		reason:   "clients of a run see servers as users do, and record what they saw",
	},
	{
		dir:      "jepsen/disk",
		testMay:  []string{"rpc/belfry/..."},
		external: []string{"github.com/hanwen/go-fuse", "golang.org/x/sys", "connectrpc.com/connect"},
		reason: "a disk for any process: it knows the names of a server's files and nothing else of it; only its tests " +
			"talk to servers",
	},
	{
		dir: "jepsen/nemesis",
		may: []string{
			"jepsen/disk", "jepsen/lab", "jepsen/nemesis/backupdiff", "jepsen/nemesis/intruder", "jepsen/network",
			"jepsen/report", "rpc/belfry/...",
		},
		external: []string{"golang.org/x/sys"},
		reason:   "faults strike real processes from outside",
	},
	{
		dir:     "jepsen/nemesis/backupdiff",
		may:     []string{"fsm", "fsm/backup"},
		testMay: []string{"fsm/codec", "fsm/machine"},
		reason:  "a backup is read with the package that wrote it, and without a server",
	},
	{
		dir:    "jepsen/nemesis/intruder",
		may:    []string{"jepsen/network"},
		reason: "who misuses a port knows nothing of what serves it",
	},
	{
		dir:      "jepsen/redisson",
		may:      []string{"mirror/redistest/redissontest"},
		external: []string{"github.com/redis/go-redis"},
		reason:   "the other side of the mirror is Redis and Redisson's part; of the mirror it sees processes",
	},
	{
		dir: "jepsen/sim",
		may: []string{
			"fsm", "fsm/codec", "fsm/machine", "fsm/model", "fsm/model/ledger", "fsm/schedules", "fsm/snapshot",
			"jepsen/sim/reference", "jepsen/sim/tally",
		},
		reason: "the simulator runs the machine itself",
	},
	{
		dir:    "jepsen/sim/reference",
		may:    []string{"fsm", "fsm/machine", "fsm/model/ledger", "jepsen/sim/tally"},
		reason: "the judge of keys and schedules sees the log of a shard, and no world",
	},
	{
		dir:    "jepsen/sim/tally",
		reason: "counts need nothing of the worlds that they are about",
	},
	{
		dir: "jepsen/checker",
		may: []string{
			"fsm", "fsm/codec", "fsm/machine", "fsm/model/ledger", "jepsen/checker/access",
			"jepsen/checker/availability", "jepsen/checker/finding", "jepsen/checker/keys", "jepsen/checker/lifecycle",
			"jepsen/checker/mirror", "jepsen/checker/sample", "jepsen/checker/schedules", "jepsen/checker/tasks",
			"jepsen/checker/wire", "jepsen/history", "jepsen/report", "node/journal", "rpc/belfry/...",
		},
		testMay:  []string{"node"}, // the entries of made-up journals
		external: []string{"google.golang.org/protobuf"},
		reason:   "the checker judges histories by the log, and the log by its ledger",
	},
	{
		dir:    "jepsen/checker/finding",
		may:    []string{"jepsen/report"},
		reason: "what was found is collected without the run",
	},
	{
		dir:      "jepsen/checker/wire",
		may:      []string{"fsm", "rpc/belfry/...", "jepsen/history"},
		testMay:  []string{"node"},
		external: []string{"google.golang.org/protobuf"},
		reason:   "what the wire says is read without the server's own conversion",
	},
	{
		dir: "jepsen/checker/access",
		may: []string{"fsm", "fsm/model/ledger", "rpc/belfry/...", "jepsen/history", "jepsen/checker/finding",
			"jepsen/checker/wire"},
		reason: "what tokens allow is judged by calls, and by commands that took effect",
	},
	{
		dir:     "jepsen/checker/availability",
		may:     []string{"rpc/belfry/...", "jepsen/history", "jepsen/checker/finding"},
		testMay: []string{"jepsen/report"},
		reason:  "availability is judged by calls and statuses, without the log",
	},
	{
		dir:    "jepsen/checker/mirror",
		may:    []string{"fsm", "rpc/belfry/...", "jepsen/history", "jepsen/checker/finding", "jepsen/checker/wire"},
		reason: "the mirror is judged by payloads, without the log",
	},
	{
		dir: "jepsen/checker/tasks",
		may: []string{"fsm", "fsm/model/ledger", "rpc/belfry/...", "jepsen/history", "jepsen/checker/finding",
			"jepsen/checker/wire"},
		reason: "tasks are judged by calls and by the log, without the code that carries them out",
	},
	{
		dir: "jepsen/checker/lifecycle",
		may: []string{"fsm", "fsm/model/ledger", "jepsen/history", "jepsen/checker/finding",
			"jepsen/checker/wire"},
		reason: "what clients were told is judged without the log",
	},
	{
		dir: "jepsen/checker/keys",
		may: []string{"fsm", "fsm/model/ledger", "jepsen/checker/finding", "jepsen/checker/lifecycle",
			"jepsen/checker/wire"},
		reason: "keys and contents are judged by what clients were told; of the log only settings and pauses are known",
	},
	{
		dir:    "jepsen/checker/schedules",
		may:    []string{"fsm", "rpc/belfry/...", "jepsen/history", "jepsen/checker/finding", "jepsen/checker/wire"},
		reason: "schedules are judged by calls, with a calendar of its own",
	},
	{
		dir:      "jepsen/checker/sample",
		may:      []string{"fsm", "rpc/belfry/...", "jepsen/history", "jepsen/checker/finding", "jepsen/checker/wire"},
		external: []string{"github.com/anishathalye/porcupine"},
		reason:   "the second opinion knows neither the log nor its ledger",
	},
	{
		dir: "cmd/belfry",
		may: []string{
			"cmd/belfry/bench", "cmd/belfry/cli", "cmd/belfry/cli/access", "cmd/belfry/cli/backup",
			"cmd/belfry/cli/cluster", "cmd/belfry/cli/daemon", "cmd/belfry/cli/jobs", "cmd/belfry/cli/migration",
			"cmd/belfry/cli/queues", "cmd/belfry/cli/schedules", "cmd/belfry/cli/top", "cmd/belfry/demo", "cmd/belfry/doctor",
		},
		testMay: []string{
			"access/certs", "access/tokens", "client", "client/belfrytest", "cluster/gossip", "cmd/belfry/bridge",
			"cmd/belfry/cli/clitest", "cmd/belfry/local", "cmd/belfry/processtest", "cmd/belfry/server", "cron",
			"cron/calendar", "fsm",
			"mirror/pair", "mirror/redisson", "mirror/redistest", "mirror/redistest/redissontest", "node",
			"node/nodetest", "node/storage/diskfault", "rpc", "rpc/backend", "rpc/belfry/...", "rpc/codec", "rpc/fault",
			"stream",
		},
		external: []string{
			"connectrpc.com/connect", "github.com/prometheus", "github.com/redis/go-redis", "github.com/spf13",
			"go.yaml.in/yaml/v3", "google.golang.org/genproto", "google.golang.org/protobuf",
		},
		reason: "the program is the tree of commands; what they do is in the folders below",
	},
	{
		dir: "cmd/belfry/cli",
		may: []string{
			"access/certs", "access/tokens", "client", "cmd/belfry/cli/flag", "cmd/belfry/cli/render",
			"cmd/belfry/server", "rpc/belfry/...", "rpc/codec", "rpc/fault", "rpc/portcheck", "rpc/spelling",
			"rpc/utf8field", "rpc/wire",
		},
		external: []string{
			"connectrpc.com/connect", "github.com/google/uuid", "github.com/spf13", "golang.org/x/term",
			"google.golang.org/genproto", "google.golang.org/protobuf",
		},
		reason: "what all verbs have in common asks a server through the contract; the server's package has the probes " +
			"that recognise other programs on its ports",
	},
	{
		dir:    "cmd/belfry/cli/flag",
		reason: "names of flags are constants",
	},
	{
		dir:      "cmd/belfry/cli/render",
		may:      []string{"rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "values become text without a server",
	},
	{
		dir: "cmd/belfry/cli/clitest",
		may: []string{"cmd/belfry/cli", "rpc/belfry/..."},
		external: []string{
			"connectrpc.com/connect", "github.com/spf13/cobra", "google.golang.org/genproto",
			"google.golang.org/protobuf",
		},
		reason: "verbs are tested against a fake server",
	},
	{
		dir: "cmd/belfry/cli/access",
		may: []string{
			"access/certs", "access/tokens", "cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render",
			"node/identity", "rpc/belfry/...", "rpc/check",
		},
		testMay:  []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13/cobra", "google.golang.org/protobuf"},
		reason:   "tokens and certificates are made without a server; the bounds of lives and names are those of the server",
	},
	{
		dir: "cmd/belfry/cli/cluster",
		may: []string{
			"access/tokens", "cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "fsm/store", "node",
			"node/admit", "rpc/belfry/...",
		},
		testMay:  []string{"cmd/belfry/cli/clitest"},
		external: []string{"connectrpc.com/connect", "github.com/spf13/cobra", "google.golang.org/protobuf"},
		reason: "verbs ask a server, and send no token in place of its id; a plan of capacity computes with the numbers " +
			"of node and fsm",
	},
	{
		dir: "cmd/belfry/cli/daemon",
		may: []string{
			"access/certs", "cluster", "cluster/catalog", "cmd/belfry/bridge", "cmd/belfry/cli", "cmd/belfry/cli/flag",
			"cmd/belfry/cli/render", "cmd/belfry/server", "node", "node/storage/disk", "rpc", "rpc/metrics", "rpc/ui",
		},
		external: []string{"github.com/spf13", "google.golang.org/protobuf"},
		reason:   "serve and recover turn settings into a server's configuration, and work on its files",
	},
	{
		dir: "cmd/belfry/cli/jobs",
		may: []string{"cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/...", "fsm",
			"rpc/fault"},
		testMay:  []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com"},
		reason:   "verbs ask a server, and know no node",
	},
	{
		dir:      "cmd/belfry/cli/queues",
		may:      []string{"cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/..."},
		testMay:  []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com"},
		reason:   "verbs ask a server, and know no node",
	},
	{
		dir:     "cmd/belfry/cli/schedules",
		may:     []string{"cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/..."},
		testMay: []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com", "go.yaml.in/yaml/v3",
			"golang.org/x/sync"},
		reason: "verbs ask a server, and know no node",
	},
	{
		dir:      "cmd/belfry/cli/top",
		may:      []string{"cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/..."},
		testMay:  []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com", "golang.org/x"},
		reason:   "verbs ask a server, and know no node",
	},
	{
		dir:      "cmd/belfry/cli/backup",
		may:      []string{"cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/...", "fsm/backup"},
		testMay:  []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com"},
		reason:   "verbs ask a server, and know no node",
	},
	{
		dir: "cmd/belfry/cli/migration",
		may: []string{"cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/...", "client",
			"mirror/...", "cmd/belfry/bridge"},
		testMay: []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com", "github.com/redis/go-redis",
			"github.com/prometheus"},
		reason: "migration is a client of both sides",
	},
	{
		dir: "cmd/belfry/server",
		may: []string{
			"access/certs", "access/tokens", "cluster", "cluster/catalog", "cluster/gossip", "cluster/placement", "cron",
			"cron/calendar", "fsm", "fsm/schedules", "node", "node/admit", "node/clock", "node/identity",
			"node/journal", "node/peer", "node/storage/disk", "rpc", "rpc/backend/adapter", "rpc/portcheck",
		},
		testMay:  []string{"cmd/belfry/processtest", "fsm/backup", "fsm/digest", "rpc/belfry/...", "rpc/fault"},
		external: []string{"connectrpc.com/connect", "github.com/prometheus", "google.golang.org/protobuf"},
		reason:   "the server connects node, cluster and rpc, and knows no verb",
	},
	{
		dir:    "cmd/belfry/local",
		may:    []string{"cmd/belfry/server", "rpc", "rpc/ui"},
		reason: "a server inside this process is the real one",
	},
	{
		dir: "cmd/belfry/bridge",
		may: []string{
			"client", "cluster/placement", "mirror/...", "cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/server",
		},
		testMay: []string{"cmd/belfry/cli/clitest"},
		external: []string{"github.com/spf13", "google.golang.org/protobuf", "connectrpc.com", "github.com/redis/go-redis",
			"github.com/prometheus"},
		reason: "bridges are clients of the server they run in",
	},
	{
		dir: "cmd/belfry/bench",
		may: []string{
			"client", "cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/local", "cmd/belfry/server",
			"rpc/belfry/...",
		},
		testMay: []string{"stream"},
		external: []string{
			"connectrpc.com/connect", "github.com/HdrHistogram/hdrhistogram-go", "github.com/spf13/cobra",
			"google.golang.org/genproto", "google.golang.org/protobuf",
		},
		reason: "a bench is a client; it calls without the SDK where it measures the contract",
	},
	{
		dir: "cmd/belfry/bench/guard",
		testMay: []string{"node/storage", "node/storage/disk", "fsm", "fsm/codec", "fsm/machine", "cmd/belfry/bench",
			"cmd/belfry/server"},
		external: []string{"github.com/hashicorp/raft"},
		reason:   "it measures parts beside the whole, of which the log takes Raft's entries",
	},
	{
		dir: "cmd/belfry/demo",
		may: []string{
			"client", "cmd/belfry/cli", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "cmd/belfry/local",
		},
		testMay:  []string{"cmd/belfry/cli/clitest", "cmd/belfry/server", "rpc/belfry/..."},
		external: []string{"github.com/spf13/cobra", "google.golang.org/protobuf"},
		reason:   "a demo is a client of a server that it may start itself",
	},
	{
		dir: "cmd/belfry/doctor",
		may: []string{
			"cmd/belfry/cli", "cmd/belfry/cli/daemon", "cmd/belfry/cli/flag", "cmd/belfry/cli/render", "rpc/belfry/...",
			"rpc/check", "rpc/findings",
		},
		external: []string{"github.com/spf13/cobra", "golang.org/x/sys", "google.golang.org/protobuf"},
		reason:   "a bundle has answers of a server, its settings and limits, and facts of the machine; it needs no node",
	},
	{
		dir:    "cmd/belfry/loopback",
		reason: "addresses are picked for whatever process",
	},
	{
		dir:    "cmd/belfry/processtest",
		may:    []string{"client", "cmd/belfry/loopback"},
		reason: "processes are driven as users drive them: by signals, and by the SDK",
	},
	{
		dir:      "cmd/belfry/clustertrial",
		testMay:  []string{"client", "client/admin", "cmd/belfry/processtest", "rpc/belfry/..."},
		external: []string{"google.golang.org/protobuf"},
		reason:   "a trial sees processes, and imports no part of the server that it judges",
	},
	{
		dir:     "cmd/belfry/crashtest",
		testMay: []string{"client", "cmd/belfry/processtest"},
		reason:  "a crash is judged by what the SDK was told",
	},
	{
		dir:      "cmd/belfry/browsertest",
		testMay:  []string{"client", "client/admin", "cmd/belfry/processtest"},
		external: []string{"github.com/chromedp/cdproto", "github.com/chromedp/chromedp"},
		reason:   "a browser sees pages; data comes by the SDK",
	},
	{
		dir: "cmd/belfry/mirrortrial",
		testMay: []string{
			"client", "client/admin", "cmd/belfry/processtest", "mirror", "mirror/redistest", "mirror/redistest/aof",
			"mirror/redistest/redissontest", "mirror/redistest/sourcetest",
		},
		external: []string{"github.com/redis/go-redis"},
		reason:   "a trial runs commands and a Redis; of the mirror it takes the form of the results that commands print",
	},
	{
		dir:      "cmd/compare",
		may:      []string{"client", "cmd/belfry/loopback", "cmd/compare/peer"},
		external: []string{"github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sync"},
		reason:   "a comparison sees servers as their users do",
	},
	{
		dir: "cmd/compare/peer",
		may: []string{"client", "rpc/belfry/...", "cmd/belfry/loopback"},
		external: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "github.com/redis/go-redis",
			"github.com/nats-io/nats.go", "golang.org/x/sync"},
		reason: "each queue is driven by its own client; what is measured is elsewhere",
	},
}

// testOnly are the third-party packages that every test may import and no other file.
var testOnly = []string{
	"github.com/google/go-cmp", "github.com/santhosh-tekuri/jsonschema", "go.opentelemetry.io/otel/sdk",
	"pgregory.net/rapid",
}

// checkImports reports imports that the table does not allow, and code that is not where it
// belongs.
func checkImports(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		row, ok := rowOf(f.dir)
		if !ok {
			found = append(found,
				f.finding(f.syntax.Package, ruleFolder,
					"%s has no row in importTable; a row of a folder above it does not cover it", f.dir))
			continue
		}
		if f.generated != inTree(f.dir, "rpc/belfry") {
			found = append(found,
				f.finding(f.syntax.Package, ruleGeneratedCode, "generated code lives in rpc/belfry, and nothing else does"))
		}
		for _, spec := range f.syntax.Imports {
			if rule, why := row.refuses(f, importPath(spec)); rule != "" {
				found = append(found, f.finding(spec.Pos(), rule, "%s imports %s: %s", f.dir, importPath(spec), why))
			}
		}
	}
	return found
}

// rowOf returns the row of a folder.
func rowOf(dir string) (importRow, bool) {
	for _, row := range importTable {
		if row.covers(dir) {
			return row, true
		}
	}
	return importRow{}, false
}

// covers reports whether a row is the one of a folder.
func (row importRow) covers(dir string) bool {
	family, ok := strings.CutSuffix(row.dir, "/...")
	return row.dir == dir || ok && inTree(dir, family)
}

// checkRows reports rows of a table that no folder of the tree needs, and folders with two rows.
func checkRows(t *tree, table []importRow) []finding {
	var found []finding
	used := make([]bool, len(table))
	seen := make(map[string]bool)
	for _, f := range t.files {
		if seen[f.dir] {
			continue
		}
		seen[f.dir] = true
		first := true
		for i, row := range table {
			if !row.covers(f.dir) {
				continue
			}
			if used[i] = true; !first {
				found = append(found, finding{f.dir, 0, ruleStaleRow, "two rows of importTable cover it"})
			}
			first = false
		}
	}
	for i, row := range table {
		if !used[i] {
			found = append(found, finding{row.dir, 0, ruleStaleRow, "it has a row in importTable and no Go files"})
		}
	}
	return found
}

// refuses returns the rule that an import breaks and why, or "" if the row allows it.
func (row importRow) refuses(f *sourceFile, imported string) (rule, why string) {
	support := isTestSupport(f.dir)
	if within, ok := strings.CutPrefix(imported, modulePath+"/"); ok {
		switch {
		case within == f.dir && f.test: // the external test package of the same folder
		case allows(row.may, within):
		case allows(row.testMay, within) && f.test:
		case allows(row.testMay, within) || isTestSupport(within) && !f.test:
			return ruleTestSupport, "for tests only"
		default:
			return ruleImport, row.reason
		}
		return "", ""
	}
	switch {
	case imported == "testing" || strings.HasPrefix(imported, "testing/") || hasPrefixIn(testOnly, imported):
		if !f.test && !support {
			return ruleTestSupport, "for tests only"
		}
	case imported == "math/rand":
		return ruleExternal, "math/rand/v2 needs no seed and no lock"
	case !strings.Contains(strings.Split(imported, "/")[0], "."): // the standard library
	case !hasPrefixIn(row.external, imported):
		return ruleExternal, row.reason
	}
	return "", ""
}

// allows reports whether one of the patterns covers a package of this module.
func allows(patterns []string, within string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		root, below := strings.CutSuffix(pattern, "/...")
		return within == root || below && inTree(within, root) && !isTestSupport(within)
	})
}

func hasPrefixIn(prefixes []string, imported string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return inTree(imported, prefix) })
}

// isTestSupport reports whether a folder holds test support, in the manner of httptest.
func isTestSupport(dir string) bool { return strings.HasSuffix(path.Base(dir), "test") }
