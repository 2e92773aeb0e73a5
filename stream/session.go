package stream

// SessionPath is the path of the request that begins a session of the SDK. SessionProtocol is the
// protocol to which it upgrades. The payloads are the messages of the contract in binary protobuf;
// a failure is a google.rpc.Status.
const (
	SessionPath     = "/belfry.v1/session"
	SessionProtocol = "belfry-session/1"
)

// These are the methods of a session. All others are called over Connect.
const (
	PutBatch Method = iota + 1
	AckBatch
	Reserve
)
