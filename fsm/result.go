package fsm

import "time"

// Result is what a command answers. Which fields a command fills is said at the command; the others
// are zero.
type Result struct {
	Code  Code
	State State
	// Created reports that a put created a job. It is false for a put that met its own earlier one.
	Created bool
	// Replaced reports that a put gave a held job its content, or became its successor.
	Replaced bool
	// More reports that a bounded command left work undone and should be sent again.
	More bool
	// Replayed marks the remembered answer to a repeated request.
	Replayed  bool
	Partition uint32
	Serial    uint64
	Due       Time
	Until     Time
	Count     uint64
	// Version counts the contents that the job has had, the first is 1. Only with puts of format 4.
	Version uint64
	// Wait is how long the caller should wait before trying again; 0 if unknown. Only with
	// RateLimited.
	Wait   time.Duration
	Grants []Grant
}

// Grant is one job under a new lease. Machine.Held reads its body, since results are remembered
// without bodies.
type Grant struct {
	Queue     string
	Partition uint32
	Serial    uint64
	Fence     uint64
	// Attempt is the running number of this attempt, 1 for the first.
	Attempt uint32
	Due     Time
	Until   Time
}
