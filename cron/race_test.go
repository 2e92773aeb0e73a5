//go:build race

package cron_test

// walkStride leaves out zones of the short walk: under the race detector it takes ten times as long,
// and shows no more, since one goroutine walks a zone.
const walkStride = 6
