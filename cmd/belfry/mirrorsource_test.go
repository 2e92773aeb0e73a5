package main

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// wrongImport is the end of an import's command line and what is said of it.
type wrongImport struct{ args, want string }

// wrongImports are imports that are refused.
func wrongImports() []wrongImport {
	return []wrongImport{
		{"--queue q --from elsewhere", "--from: can be"},
		{"--queue q --from lmstfy", "NAMESPACE/QUEUE"},
		{"--queue a/b/c --from lmstfy", "NAMESPACE/QUEUE"},
		{"--queue n/q --from lmstfy --dead keep", "--dead: dead letters can be"},
		{"--queue n/q --from lmstfy --unnamed", "--unnamed needs --stopped"},
		{"--queue q --from youzan --bucket-pattern b", "must have one %d"},
		{"--queue n/q --from lmstfy --stopped --follow", "exclude each other"},
		{"--queue q --stopped", "--stopped and --unnamed are for"},
		{"--queue n/q --from lmstfy --codec json", "--codec is for --from redisson"},
		{"--queue q --from youzan --ready", "--ready is for --from redisson"},
		{"--queue q --from youzan --again", "--again is for --from redisson"},
		{"--queue q --from youzan --dead queue", "--dead is for --from lmstfy"},
		{"--queue q --dead queue", "--dead is for --from lmstfy"},
		{"--queue q --buckets 2", "are for --from youzan"},
		{"--queue q --bucket-pattern b-%d", "are for --from youzan"},
		{"--queue n/q --from lmstfy --queue-pattern q-%s", "are for --from youzan"},
	}
}

// TestMirrorSources shows queues of lmstfy and ouqiang/delay-queue, and brings them over.
func TestMirrorSources(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	do := func(args ...any) {
		t.Helper()
		if err := r.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// As real servers wrote them: a ready job of lmstfy, and one of ouqiang/delay-queue under settings
	// of its own, which is due.
	do("SET", "j/ns1/q1/01M7YV5MCGJ9WWV0GCV0000000", "body")
	do("LPUSH", "q/ns1/q1", "\x01\x00\x1a\x0001M7YV5MCGJ9WWV0GCV0000000")
	do("SET", "15702398321",
		"\x85\xa11\xa5order\xa12\xab15702398321\xa13\xce\x6b\x01\x83\x36\xa14\x78\xa15\xb1{\"uid\": 10829378}")
	do("RPUSH", "ready-order", "15702398321")

	h := newHarness(t, nil)
	h.Env["BELFRY_SERVER"] = belfrytest.Start(t).URL
	says := func(code int, want []string, args ...string) {
		t.Helper()
		got := h.Run(args...)
		for _, text := range want {
			if !strings.Contains(got.Out+got.Err, text) {
				t.Errorf("%v: does not say %q:\n%s%s", args, text, got.Out, got.Err)
			}
		}
		if got.Code != code {
			t.Errorf("%v: exit code %d, want %d:\n%s", args, got.Code, code, got.Err)
		}
	}
	settings := []string{"--queue-pattern", "ready-%s", "--bucket-pattern", "b-%d", "--buckets", "2"}
	says(0, []string{"lmstfy queue  ns1/q1", "0 delayed, 0 reserved, 1 ready, 0 dead", "youzan topic  order",
		"0 delayed, 0 reserved, 1 ready\n"},
		append([]string{"mirror", "inspect", r.URL()}, settings...)...)
	says(0, []string{`"lmstfy"`, `"ready":1`}, "mirror", "inspect", r.URL(), "--from", "lmstfy", "--queue", "ns1/q1", "-o",
		"json")
	says(0, []string{"1 ready, 0 dead"}, "mirror", "import", r.URL(), "--from", "lmstfy", "--queue", "ns1/q1", "--dry-run")
	says(0, []string{"gone from Redis  1\n"}, "mirror", "import", r.URL(), "--from", "lmstfy", "--queue", "ns1/q1")
	says(0, []string{"body"}, "get", "ns1/q1", "01M7YV5MCGJ9WWV0GCV0000000")
	const summary = `{"total":1,"claimed":1,"committed":1,"acked":1,"repeated":0,"gone":0,"setAside":0,"reserved":0,` +
		`"dead":0,"unnamed":0,"unread":0,"slowestNs":`
	says(0, []string{summary},
		append([]string{"mirror", "import", r.URL(), "--from", "youzan", "--queue", "order", "--stopped", "-o", "json"},
			settings...)...)
	says(0, []string{`{"uid": 10829378}`}, "get", "order", "15702398321")
	says(0, []string{"no delayed queue\n"}, "mirror", "inspect", r.URL())
	do("HSET", "belfry_aside:lmstfy:ns1/q1", "job", "record")
	says(1, []string{"NO  no job is set aside", "belfry_aside:lmstfy:ns1/q1 has 1", "cannot be ended yet"}, "mirror",
		"finalize", r.URL(), "--from", "lmstfy", "--queue", "ns1/q1")
	do("DEL", "belfry_aside:lmstfy:ns1/q1")
	for range 2 {
		says(0, []string{"no job waits at the source"}, "mirror", "finalize", r.URL(), "--from", "lmstfy", "--queue",
			"ns1/q1")
		says(0, []string{"every claimed job is in Belfry"},
			append([]string{"mirror", "finalize", r.URL(), "--from", "youzan", "--queue", "order"}, settings...)...)
	}

	says(cli.CodeUsage, []string{"are for --from youzan"}, "mirror", "inspect", r.URL(), "--queue", "q", "--buckets", "2")

	for _, wrong := range wrongImports() {
		says(cli.CodeUsage, []string{wrong.want},
			append([]string{"mirror", "import", r.URL()}, strings.Fields(wrong.args)...)...)
	}
}
