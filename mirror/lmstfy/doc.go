// Package lmstfy reads and writes what an lmstfy server keeps in Redis: names of keys, members of
// its timer, elements of its lists, ids and values of jobs. It does no I/O.
//
//	key                            type     content
//	timer_set                      ZSET     of all queues: a TimerMember, scored with its due time in Unix seconds
//	q/<namespace>/<queue>          LIST     ready: an Element; new ones at the head, consumers take the tail
//	d/<namespace>/<queue>          LIST     dead letters: an Element with one try
//	j/<namespace>/<queue>/<id>     STRING   the job's value, with the job's TTL
//	m/ns, m/ns/<namespace>         HASH     the namespaces, and the queues of one
//
// A reserved job lies in timer_set too, at the end of its lease and with the tries that are left.
// The member does not tell it from a delayed one, but the score does: that of a job never handed
// out is the second in which it was published, or the next, plus its delay. ParseID returns both. A
// reserved one's is later by at least the length of its lease. A job is finished once its value is
// gone, whatever still names it.
package lmstfy
