package fault

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// errorDomain is the domain of every google.rpc.ErrorInfo that Belfry sends.
const errorDomain = "belfry"

// Wire returns the fault as a Connect error with its ErrorInfo and, where waiting helps, RetryInfo.
func (f *Error) Wire() *connect.Error {
	err := connect.NewError(f.Code(), errors.New(f.Message))
	metadata := map[string]string{"outcome": outcomeName(f.Outcome())}
	if f.Shard != nil {
		metadata["shard"] = strconv.FormatUint(uint64(*f.Shard), 10)
	}
	if f.Leader != "" {
		metadata["leader"] = f.Leader
	}
	if f.Field != "" {
		metadata["field"] = f.Field
	}
	if f.State != fsm.StateNone {
		metadata["state"] = StateName(f.State)
	}
	if f.Voters != nil {
		metadata["have"], metadata["want"] = strconv.Itoa(f.Voters.Have), strconv.Itoa(f.Voters.Want)
	}
	if f.Count != nil {
		metadata["count"] = strconv.FormatUint(*f.Count, 10)
	}
	if f.Version != nil {
		metadata["version"] = strconv.FormatUint(*f.Version, 10)
	}
	if m := f.Memory; m != nil {
		metadata["used"], metadata["limit"] = strconv.FormatUint(m.Used, 10), strconv.FormatUint(m.Limit, 10)
	}
	if w := f.Witness; w != nil {
		metadata["term"], metadata["index"] = strconv.FormatUint(w.GetTerm(), 10), strconv.FormatUint(w.GetIndex(), 10)
		metadata["entry"] = strconv.FormatUint(uint64(w.GetEntry()), 10)
		metadata["time"] = w.GetTime().AsTime().Format(time.RFC3339Nano)
	}
	info := &errdetails.ErrorInfo{Reason: ReasonName(f.Reason), Domain: errorDomain, Metadata: metadata}
	if detail, detailErr := connect.NewErrorDetail(info); detailErr == nil {
		err.AddDetail(detail)
	}
	if f.RetryAfter > 0 {
		if detail, detailErr := connect.NewErrorDetail(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)}); detailErr == nil {
			err.AddDetail(detail)
		}
	}
	return err
}

// Entry returns the fault as the error of one entry of a batch.
func (f *Error) Entry() *belfryv1.EntryError {
	e := &belfryv1.EntryError{
		Code: f.Code().String(), Reason: f.Reason, Message: f.Message, Outcome: f.Outcome(), Shard: f.Shard, Leader: f.Leader,
		Witness: f.Witness,
	}
	if f.Version != nil {
		e.Version = f.Version
	}
	if f.RetryAfter > 0 {
		e.RetryAfter = durationpb.New(f.RetryAfter)
	}
	return e
}

// FromConnect returns the fault in a Connect error of a Belfry server. It returns false if there is
// none.
func FromConnect(err error) (*Error, bool) {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return nil, false
	}
	var f *Error
	var retry time.Duration
	for _, detail := range wire.Details() {
		message, err := detail.Value()
		if err != nil {
			continue
		}
		switch m := message.(type) {
		case *errdetails.ErrorInfo:
			if m.GetDomain() == errorDomain {
				f = faultOfInfo(m)
			}
		case *errdetails.RetryInfo:
			retry = m.GetRetryDelay().AsDuration()
		}
	}
	if f == nil {
		return nil, false
	}
	f.Message, f.RetryAfter = wire.Message(), retry
	return f, true
}

// faultOfInfo reads a fault from an ErrorInfo. A reason that this version does not know stays
// UNSPECIFIED.
func faultOfInfo(info *errdetails.ErrorInfo) *Error {
	metadata := info.GetMetadata()
	f := &Error{
		Reason: belfryv1.Reason(belfryv1.Reason_value["REASON_"+info.GetReason()]),
		Field:  metadata["field"],
		Leader: metadata["leader"],
	}
	for state := fsm.Delayed; state <= fsm.Expired; state++ {
		if StateName(state) == metadata["state"] {
			f.State = state
		}
	}
	if shard, err := strconv.ParseUint(metadata["shard"], 10, 32); err == nil {
		n := uint32(shard)
		f.Shard, f.Witness = &n, witnessOfInfo(n, metadata)
	}
	if count, err := strconv.ParseUint(metadata["count"], 10, 64); err == nil {
		f.Count = &count
	}
	if version, err := strconv.ParseUint(metadata["version"], 10, 64); err == nil {
		f.Version = &version
	}
	return f
}

// witnessOfInfo reads the witness of an error that a shard's log decided. It returns nil for other
// errors.
func witnessOfInfo(shard uint32, metadata map[string]string) *belfryv1.Witness {
	term, termErr := strconv.ParseUint(metadata["term"], 10, 64)
	index, indexErr := strconv.ParseUint(metadata["index"], 10, 64)
	entry, entryErr := strconv.ParseUint(metadata["entry"], 10, 32)
	at, timeErr := time.Parse(time.RFC3339Nano, metadata["time"])
	if errors.Join(termErr, indexErr, entryErr, timeErr) != nil {
		return nil
	}
	return &belfryv1.Witness{Shard: shard, Term: term, Index: index, Entry: uint32(entry), Time: timestamppb.New(at)}
}

// outcomeName returns the outcome without the prefix.
func outcomeName(o belfryv1.Outcome) string { return strings.TrimPrefix(o.String(), "OUTCOME_") }

// StateName returns the wire name of a job's state, without the prefix.
func StateName(s fsm.State) string {
	return strings.TrimPrefix(wire.State(s).String(), "JOB_STATE_")
}
