//go:build !race

package cron_test

// walkStride leaves out no zone of the short walk.
const walkStride = 1
