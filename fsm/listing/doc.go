// Package listing gathers the keys of one page of a listing of jobs from the orders of a queue. It
// only reads, and may run beside other reads.
package listing
