// Package wire converts between the values of the state machine and those of the public contract,
// belfry.v1: states, times, witnesses, jobs, lease tokens and durations. It has no server, no
// limits and no permissions, and its functions may be called from any goroutine.
//
// The binary writers write the same bytes for a response as the generated code would, or as long
// ones, without a message in between.
package wire
