// Package backup reads and writes the stream of a backup and the records in it. It needs no
// machine. Errors about bytes wrap fsm.ErrDamaged, fsm.ErrVersion or [ErrIncomplete].
package backup
