package belfry_test

import (
	"slices"
	"testing"
)

var plantedPurity = []planted{
	{
		name: "allowed",
		files: map[string]string{
			"fsm/a.go": `package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/btree"
)

const day = 24 * time.Hour

var errEmpty = errors.New("empty")

type machine struct {
	jobs map[uint64]int
	due  *btree.BTreeG[uint64]
	wait time.Duration
}

func (m *machine) put(serial uint64) error {
	m.jobs[serial]++
	m.due.ReplaceOrInsert(serial)
	m.wait = min(day, math.MaxInt64).Truncate(time.Second)
	if len(m.jobs) == 0 {
		panic(fmt.Sprintf("%d: %v", serial, errEmpty))
	}
	for i := range 3 {
		delete(m.jobs, uint64(i))
	}
	return fmt.Errorf("%w", errEmpty)
}

func largest[T cmp.Ordered](values ...T) T { return slices.Max(values) }

var biggest = largest(1, 2)
`,
			"fsm/a_test.go":  "package fsm\n\nimport \"time\"\n\nvar _ = time.Now()\n",
			"fsm/model/a.go": "package model\n\nfunc f(m map[int]int) {\n\tfor range m {\n\t}\n}\n",
		},
	},
	{
		name: "every room below",
		files: map[string]string{
			"fsm/store/a.go": `package store

import (
	_ "os"

	"github.com/belfrydb/belfry/fsm"
	_ "github.com/belfrydb/belfry/fsm/model"
)

type later struct{ due fsm.Time }

func f(m map[int]int) {
	for range m {
	}
	go f(m)
}
`,
			"fsm/codec/deep/a.go": "package deep\n\nvar n int\n\nfunc f() {\n\tn++\n}\n",
			"fsm/fsmtest/a.go":    "package fsmtest\n\nimport _ \"os\"\n",
			"fsmlike/a.go":        "package fsmlike\n\nimport _ \"os\"\n",
			"fsm/store/a_test.go": "package store\n\nimport _ \"os\"\n",
		},
		want: []string{
			"fsm/codec/deep/a.go:6: purity/global-state", "fsm/store/a.go:4: purity/import", "fsm/store/a.go:7: purity/import",
			"fsm/store/a.go:13: purity/map-range", "fsm/store/a.go:15: purity/concurrency",
		},
	},
	{
		name: "map ranges",
		files: map[string]string{"fsm/a.go": `package fsm

type index map[int]int
type alias = index
type mapLike interface{ ~map[int]int }

func f[M ~map[int]int, N mapLike, S ~[]int](a map[int]int, b index, c alias, m M, n N, s S) {
	for range a {
	}
	for k := range b {
		_ = k
	}
	for k, v := range c {
		_, _ = k, v
	}
	for range m {
	}
	for range n {
	}
	for range s {
	}
	for range struct{ m map[int]int }{}.m {
	}
}
`},
		want: []string{
			"fsm/a.go:8: purity/map-range", "fsm/a.go:10: purity/map-range", "fsm/a.go:13: purity/map-range",
			"fsm/a.go:16: purity/map-range", "fsm/a.go:18: purity/map-range", "fsm/a.go:22: purity/map-range",
		},
	},
	{
		name: "goroutines and channels",
		files: map[string]string{"fsm/a.go": `package fsm

type signal chan struct{}

func f(n int) {
	go f(n)
	select {}
}

func g(s signal) {
	s <- struct{}{}
	<-s
	close(s)
	for range s {
	}
}

var made = make(signal)
`},
		want: []string{
			"fsm/a.go:3: purity/concurrency", "fsm/a.go:6: purity/concurrency", "fsm/a.go:7: purity/concurrency",
			"fsm/a.go:10: purity/concurrency", "fsm/a.go:11: purity/concurrency", "fsm/a.go:12: purity/concurrency",
			"fsm/a.go:13: purity/concurrency", "fsm/a.go:14: purity/concurrency", "fsm/a.go:18: purity/concurrency",
		},
	},
	{
		name: "imports",
		files: map[string]string{"fsm/a.go": `package fsm

import (
	_ "context"
	_ "crypto/rand"
	_ "hash/maphash"
	_ "log"
	_ "log/slog"
	_ "maps"
	_ "math/rand"
	_ "math/rand/v2"
	_ "net"
	_ "os"
	_ "reflect"
	_ "runtime"
	_ "sync"
	_ "sync/atomic"
	_ "unsafe"
	_ "text/template"
)
`},
		want: []string{
			"fsm/a.go:4: purity/import", "fsm/a.go:5: purity/import", "fsm/a.go:6: purity/import", "fsm/a.go:7: purity/import",
			"fsm/a.go:8: purity/import", "fsm/a.go:9: purity/import", "fsm/a.go:10: purity/import", "fsm/a.go:11: purity/import",
			"fsm/a.go:12: purity/import", "fsm/a.go:13: purity/import", "fsm/a.go:14: purity/import",
			"fsm/a.go:15: purity/import",
			"fsm/a.go:16: purity/import", "fsm/a.go:17: purity/import", "fsm/a.go:18: purity/import",
			"fsm/a.go:19: purity/import",
		},
	},
	{
		name: "names of time and fmt",
		files: map[string]string{"fsm/a.go": `package fsm

import (
	out "fmt"
	"time"
)

type job struct{ due time.Time }

func f() {
	_ = time.Now()
	_ = time.Since
	time.AfterFunc(time.Second, f)
	out.Println()
	out.Sscan("")
	_ = out.Sprint()
}
`},
		want: []string{
			"fsm/a.go:8: purity/name", "fsm/a.go:11: purity/name", "fsm/a.go:12: purity/name",
			"fsm/a.go:13: purity/name", "fsm/a.go:14: purity/name", "fsm/a.go:15: purity/name",
		},
	},
	{
		name: "floats and addresses",
		files: map[string]string{"fsm/a.go": `package fsm

import (
	"fmt"
	"time"
)

type rate float64

func f(r rate, d time.Duration, p *int, z complex64) {
	_ = r + 1
	_ = d.Seconds()
	_ = 0.5
	_ = z
	_ = fmt.Sprintf("%p", p)
	var address uintptr
	_ = address
}

const whole int = 1e6
`},
		want: []string{
			"fsm/a.go:8: purity/float", "fsm/a.go:10: purity/float", "fsm/a.go:11: purity/float",
			"fsm/a.go:12: purity/float", "fsm/a.go:13: purity/float", "fsm/a.go:14: purity/float",
			"fsm/a.go:15: purity/pointer", "fsm/a.go:16: purity/pointer", "fsm/a.go:17: purity/pointer",
		},
	},
	{
		name: "state outside the machine, output, platforms",
		files: map[string]string{
			"fsm/a.go": `package fsm

var count, table, record = 0, map[int]int{}, struct{ n int }{}

func f() {
	count++
	table[1] = 2
	record.n, count = 1, 2
	count := 0
	count++
	print(count)
	println()
}
`,
			"fsm/b.go": "//go:build linux\n\npackage fsm\n\nfunc g() int { return missing }\n",
		},
		want: []string{
			"fsm/a.go:6: purity/global-state", "fsm/a.go:7: purity/global-state", "fsm/a.go:8: purity/global-state",
			"fsm/a.go:11: purity/print", "fsm/a.go:12: purity/print",
			"fsm/b.go:1: purity/build", "fsm/b.go:5: purity/types",
		},
	},
}

func TestPurityRulesReportPlanted(t *testing.T) {
	var imported []string
	for _, p := range plantedPurity {
		imported = append(imported, pureImports(parsePlanted(t, p))...)
	}
	slices.Sort(imported)
	lookup := exportsOf(t, ".", slices.Compact(imported))
	runPlanted(t, plantedPurity, func(t *testing.T, p planted) []finding {
		return checkPurity(parsePlanted(t, p), lookup)
	})
}
