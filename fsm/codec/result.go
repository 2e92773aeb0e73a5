package codec

import (
	"encoding/binary"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
)

// The results of a request, as one node hands them to another:
//
//	byte     resultsVersion
//	uvarint  number of results, then each
const resultsVersion = 1

// AppendResults appends the encoding of what commands were answered to dst. Nothing that a caller
// may see of a result is lost.
func AppendResults(dst []byte, results []fsm.Result) []byte {
	dst = binary.AppendUvarint(append(dst, resultsVersion), uint64(len(results)))
	for i := range results {
		dst = appendResult(dst, &results[i])
	}
	return dst
}

// ParseResults reads results back. They share no memory with b. Errors wrap ErrDamaged or
// ErrVersion.
func ParseResults(b []byte) ([]fsm.Result, error) {
	r := NewReader(b)
	r.version("results", resultsVersion)
	var results []fsm.Result
	if n := r.Length(3); n > 0 {
		results = make([]fsm.Result, n)
	}
	for i := range results {
		v := r.result()
		if v.Code > fsm.LastCode || v.State > fsm.Expired {
			r.fail(fmt.Errorf("%w: code %d, state %d", fsm.ErrVersion, v.Code, v.State))
		}
		results[i] = v
	}
	if err := r.CheckEnd(); err != nil {
		return nil, err
	}
	return results, nil
}

// The answer:
//
//	text caller, text request id, 16 bytes content, uvarint at, uvarint number of results, then each result
//
// A result is a byte Code, a byte State, a byte of these flags, the fields they name, and the
// grants. A result with a version has resultVersion added to its Code; uvarint version and flag
// replaced come at its end.
const (
	resultCreated = 1 << iota
	resultMore
	resultJob    // partition, serial
	resultTimes  // due, until
	resultCount  // count
	resultWait   // wait
	resultGrants // number, then each
	resultReplayed
)

const resultVersion = 0x80

// AppendAnswer appends what is remembered of a request.
func AppendAnswer(dst []byte, a *fsm.Answer) []byte {
	dst = append(AppendText(AppendText(dst, a.Caller), a.ID), a.Content[:]...)
	dst = binary.AppendUvarint(dst, uint64(a.At))
	dst = binary.AppendUvarint(dst, uint64(len(a.Results)))
	for i := range a.Results {
		dst = appendResult(dst, &a.Results[i])
	}
	return dst
}

func appendResult(dst []byte, r *fsm.Result) []byte {
	fields := byte(0)
	for bit, set := range [...]bool{
		r.Created, r.More, r.Serial != 0 || r.Partition != 0, r.Due != 0 || r.Until != 0, r.Count != 0, r.Wait != 0,
		len(r.Grants) > 0, r.Replayed,
	} {
		if set {
			fields |= 1 << bit
		}
	}
	code := byte(r.Code)
	if r.Version != 0 {
		code |= resultVersion
	}
	dst = append(dst, code, byte(r.State), fields)
	if fields&resultJob != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Partition)), r.Serial)
	}
	if fields&resultTimes != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(r.Due)), Unsigned(r.Until))
	}
	if fields&resultCount != 0 {
		dst = binary.AppendUvarint(dst, r.Count)
	}
	if fields&resultWait != 0 {
		dst = binary.AppendUvarint(dst, Unsigned(r.Wait))
	}
	if fields&resultGrants != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Grants)))
		for i := range r.Grants {
			dst = appendGrant(dst, &r.Grants[i])
		}
	}
	if r.Version != 0 {
		dst = appendFlag(binary.AppendUvarint(dst, r.Version), r.Replaced)
	}
	return dst
}

func appendGrant(dst []byte, g *fsm.Grant) []byte {
	dst = binary.AppendUvarint(AppendText(dst, g.Queue), uint64(g.Partition))
	for _, v := range [...]uint64{g.Serial, g.Fence, uint64(g.Attempt), Unsigned(g.Due), Unsigned(g.Until)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// Answer reads what AppendAnswer appended.
func (r *Reader) Answer() fsm.Answer {
	a := fsm.Answer{Caller: r.Text(), ID: r.Text(), Content: r.Array16(), At: r.Time()}
	if n := r.Length(3); n > 0 {
		a.Results = make([]fsm.Result, n)
	}
	for i := range a.Results {
		a.Results[i] = r.result()
	}
	return a
}

func (r *Reader) result() fsm.Result {
	code := r.Byte()
	v := fsm.Result{Code: fsm.Code(code &^ resultVersion), State: fsm.State(r.Byte())}
	fields := r.Byte()
	v.Created, v.More, v.Replayed = fields&resultCreated != 0, fields&resultMore != 0, fields&resultReplayed != 0
	if fields&resultJob != 0 {
		v.Partition, v.Serial = r.Uint32(), r.Uvarint()
	}
	if fields&resultTimes != 0 {
		v.Due, v.Until = r.Time(), r.Time()
	}
	if fields&resultCount != 0 {
		v.Count = r.Uvarint()
	}
	if fields&resultWait != 0 {
		v.Wait = r.duration()
	}
	if fields&resultGrants != 0 {
		v.Grants = r.grants()
	}
	if code&resultVersion != 0 {
		v.Version, v.Replaced = r.Uvarint(), r.flag()
	}
	return v
}

// grants reads the number of grants and the grants.
func (r *Reader) grants() []fsm.Grant {
	n := r.Length(7)
	if n == 0 {
		return nil
	}
	list := make([]fsm.Grant, n)
	for i := range list {
		list[i] = fsm.Grant{
			Queue: r.Text(), Partition: r.Uint32(), Serial: r.Uvarint(), Fence: r.Uvarint(), Attempt: r.Uint32(),
			Due: r.Time(), Until: r.Time(),
		}
	}
	return list
}
