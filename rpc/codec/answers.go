package codec

import (
	"strconv"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The answers to single calls, and the witness in every answer, are written without descriptors.
// TestAppendTyped compares their JSON with that of appendMessage, for messages with all fields.

// appendWitness appends a witness as JSON.
func appendWitness(dst []byte, w *belfryv1.Witness) []byte {
	dst = strconv.AppendUint(append(dst, `{"shard":`...), uint64(w.GetShard()), 10)
	dst = strconv.AppendUint(append(dst, `,"term":"`...), w.GetTerm(), 10)
	dst = strconv.AppendUint(append(dst, `","index":"`...), w.GetIndex(), 10)
	dst = strconv.AppendUint(append(dst, `","entry":`...), uint64(w.GetEntry()), 10)
	if at := w.GetTime(); at != nil {
		dst = appendTime(append(dst, `,"time":`...), at.GetSeconds(), int64(at.GetNanos()))
	}
	return append(dst, '}')
}

// appendPutResponse appends the answer to a put as JSON.
func appendPutResponse(dst []byte, r *belfryv1.PutResponse) []byte {
	dst = appendString(append(dst, `{"id":`...), r.GetId())
	if due := r.GetDueAt(); due != nil {
		dst = appendTime(append(dst, `,"dueAt":`...), due.GetSeconds(), int64(due.GetNanos()))
	}
	dst = strconv.AppendBool(append(dst, `,"created":`...), r.GetCreated())
	state := r.GetState()
	dst = appendEnum(append(dst, `,"state":`...), state.Descriptor(), state.Number())
	if w := r.GetWitness(); w != nil {
		dst = appendWitness(append(dst, `,"witness":`...), w)
	}
	dst = strconv.AppendBool(append(dst, `,"replaced":`...), r.GetReplaced())
	dst = strconv.AppendUint(append(dst, `,"version":"`...), r.GetVersion(), 10)
	return append(dst, `"}`...)
}

// appendAckResponse appends the answer to an ack as JSON.
func appendAckResponse(dst []byte, r *belfryv1.AckResponse) []byte {
	dst = append(dst, '{')
	if w := r.GetWitness(); w != nil {
		dst = appendWitness(append(dst, `"witness":`...), w)
	}
	return append(dst, '}')
}
