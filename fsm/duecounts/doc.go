// Package duecounts counts the delayed jobs of a queue by when they fall due.
//
// [Counts] are changed by one goroutine at a time. Reads may run beside reads, but never beside a
// change.
package duecounts
