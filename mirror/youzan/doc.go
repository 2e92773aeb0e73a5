// Package youzan reads and writes the data of ouqiang/delay-queue in Redis, and of similar programs
// after Youzan's design: names of keys, and jobs in msgpack. It does no I/O.
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
// A reserved job is in a bucket too, at the end of its lease; its own due second does not change. A
// job is finished when its key is gone, even if lists still name it. The server's settings decide
// the names of buckets and lists.
package youzan
