package auth

// CallIDHeader carries the id of a call, for the client and for the server's log. The server
// sets it on every request that arrives without a valid one.
const CallIDHeader = "X-Request-Id"

// Call is a call as the logs see it.
type Call struct {
	// Procedure is the path of the method.
	Procedure string
	// Address is the address of the client.
	Address string
	// ID is the id under which client and log know the call. The calls of a session share one.
	ID string
	// Request is the message of the call, of a stream the first one. It is nil for the calls of
	// sessions and raw routes.
	Request any
	// Answer is the message that answered the call; nil if the call failed or is a stream.
	Answer any
}
