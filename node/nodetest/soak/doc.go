// Package soak runs whole clusters through seeded schedules of faults in virtual time, with the
// real Raft, the real transport and the real storage on disks in memory, and judges what the
// clients were told.
package soak
