package belfry_test

import "testing"

var plantedSize = []planted{
	{
		name: "bool parameters",
		files: map[string]string{
			"node/a.go": `package node

type T[X any] struct{}
type u struct{}

func F(n int, sync bool)          {}
func (t *T[X]) F(force bool) bool { return force }
func f(b bool)                    {}
func (u) F(b bool)                {}
func (t T[X]) f(b bool)           {}
func G(opts ...func(bool)) bool   { return false }
`,
			"node/a_test.go": "package node\n\nfunc F(b bool) {}\n",
		},
		want: []string{"node/a.go:6: size/bool-parameter", "node/a.go:7: size/bool-parameter"},
	},
	{
		name: "folders that say nothing",
		files: map[string]string{
			"node/util/a.go":    "package util\n",
			"rpc/helpers/a.go":  "package helpers\n",
			"node/storage/a.go": "package storage\n",
		},
		want: []string{"node/util/a.go:1: size/folder-name", "rpc/helpers/a.go:1: size/folder-name"},
	},
	{
		name: "sleeping tests",
		files: map[string]string{
			"node/a_test.go": `package node

import (
	"testing"
	"testing/synctest"
	clock "time"
)

func TestA(t *testing.T) {
	clock.Sleep(1)
	<-clock.After(1)
	synctest.Test(t, func(t *testing.T) { clock.Sleep(1) })
	select {
	case <-clock.After(1):
		clock.Sleep(2)
	}
}
`,
			"node/a.go": "package node\n\nimport \"time\"\n\nfunc backOff() { time.Sleep(1) }\n",
			"node/b_test.go": `package node

import "time"

func TestB(t *testing.T) {
	inBubble(t, func() { time.Sleep(1) })
	outside(t, func() { time.Sleep(1) })
}
`,
			"node/bubble_test.go": `package node

import (
	"testing"
	"testing/synctest"
)

func inBubble(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }

func outside(t *testing.T, f func()) { f() }
`,
		},
		want: []string{
			"node/a_test.go:10: tests/sleep", "node/a_test.go:11: tests/sleep", "node/a_test.go:15: tests/sleep",
			"node/b_test.go:7: tests/sleep",
		},
	},
	{
		name: "skipped tests",
		files: map[string]string{
			"node/a_test.go": `package node

import (
	"testing"
	"testing/synctest"
	"pgregory.net/rapid"
)

func TestA(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
}

func inAll(tb testing.TB, b *testing.B, f *testing.F) {
	tb.Skipf("")
	b.SkipNow()
	f.Skip()
}

func property(t *testing.T, d decoder) {
	d.Skip(2)
	rapid.Check(t, func(t *rapid.T) { t.Skip() })
	t.Run("", func(t *testing.T) { t.Skip() })
	synctest.Test(t, func(t *testing.T) { t.Skip() })
}
`,
		},
		want: []string{
			"node/a_test.go:10: tests/skip", "node/a_test.go:11: tests/skip", "node/a_test.go:16: tests/skip",
			"node/a_test.go:17: tests/skip", "node/a_test.go:18: tests/skip", "node/a_test.go:24: tests/skip",
			"node/a_test.go:25: tests/skip",
		},
	},
}

func TestSizeRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedSize, func(t *testing.T, p planted) []finding { return checkSize(parsePlanted(t, p)) })
}
