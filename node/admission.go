package node

import "github.com/belfrydb/belfry/node/admit"

// The values and errors of package admit that callers of this package meet.
type (
	// Limit names one of the limits of a namespace, Amounts holds one amount for each.
	Limit   = admit.Limit
	Amounts = admit.Amounts
	// ShardQuota is the part of a namespace's quota that one shard may use, NamespaceUse what it uses of it.
	ShardQuota   = admit.ShardQuota
	NamespaceUse = admit.NamespaceUse
	// MemoryStatus is a node's use of memory.
	MemoryStatus = admit.MemoryStatus
	// QuotaError, QueuesError, NoQueueError, MemoryError and VotersError are refusals with their figures.
	QuotaError   = admit.QuotaError
	QueuesError  = admit.QueuesError
	NoQueueError = admit.NoQueueError
	MemoryError  = admit.MemoryError
	VotersError  = admit.VotersError
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
