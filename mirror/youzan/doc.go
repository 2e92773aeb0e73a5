// Package youzan reads and writes what ouqiang/delay-queue, and what was built like it after
// Youzan's design, keeps in Redis: names of keys, and jobs in msgpack. It does no I/O.
//
//	key                  type     content
//	<job id>             STRING   the Job, without a TTL
//	dq_bucket_<number>   ZSET     job ids, scored with the Unix second at which each is looked at again
//	dq_queue_<topic>     LIST     ids of ready jobs: new ones at the tail, consumers take the head
//
// A job is a map of five entries, whose keys are texts:
//
//	"1" topic | "2" id | "3" due, Unix seconds | "4" TTR, seconds | "5" body
//
// A reserved job lies in a bucket too, at the end of its lease; its own due second does not change.
// A job is finished once its key is gone, whatever still names it. Names of keys are a matter of
// the server's settings.
package youzan
