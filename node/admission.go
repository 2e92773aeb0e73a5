package node

import "github.com/belfrydb/belfry/node/admit"

// Callers of this package meet these values and errors of package admit.
type (
	// Limit names one of the limits of a namespace.
	Limit = admit.Limit
	// Amounts holds one amount for each limit.
	Amounts = admit.Amounts
	// ShardQuota is the part of a namespace's quota that one shard may use.
	ShardQuota = admit.ShardQuota
	// NamespaceUse is what a namespace uses in one shard.
	NamespaceUse = admit.NamespaceUse
	// MemoryStatus is a node's use of memory.
	MemoryStatus = admit.MemoryStatus
	// QuotaError refuses a request beyond the quota of its namespace.
	QuotaError = admit.QuotaError
	// QueuesError refuses a queue beyond the number that a namespace may create in a shard.
	QueuesError = admit.QueuesError
	// NoQueueError refuses a put into a queue that does not exist and may not be created.
	NoQueueError = admit.NoQueueError
	// MemoryError refuses a put because a voter's memory is full.
	MemoryError = admit.MemoryError
	// VotersError refuses a request because the shard has too few voters.
	VotersError = admit.VotersError
)

// The limits of a namespace. PutRate is in thousandths of a put per second.
const (
	JobsLimit   = admit.JobsLimit
	BytesLimit  = admit.BytesLimit
	LeasesLimit = admit.LeasesLimit
	PutRate     = admit.PutRate
	Limits      = admit.Limits
)

// MemoryBytesMin is the least limit of memory with which a node can work.
const MemoryBytesMin = admit.MemoryBytesMin
