package fsm

import (
	"encoding/binary"
	"fmt"
)

// The results of a request, as one node hands them to another:
//
//	byte     resultsVersion
//	uvarint  number of results, then each
const resultsVersion = 1

// AppendResults appends the encoding of what commands were answered to dst. Nothing that a caller may see of a result is lost.
func AppendResults(dst []byte, results []Result) []byte {
	dst = binary.AppendUvarint(append(dst, resultsVersion), uint64(len(results)))
	for i := range results {
		dst = appendResult(dst, &results[i])
	}
	return dst
}

// ParseResults reads results back. They share no memory with b. Errors wrap ErrDamaged or ErrVersion.
func ParseResults(b []byte) ([]Result, error) {
	r := newReader(b)
	r.version("results", resultsVersion)
	var results []Result
	if n := r.length(3); n > 0 {
		results = make([]Result, n)
	}
	for i := range results {
		v := r.result()
		if v.Code > Restoring || v.State > Expired {
			r.fail(fmt.Errorf("%w: code %d, state %d", ErrVersion, v.Code, v.State))
		}
		results[i] = v
	}
	if err := r.checkEnd(); err != nil {
		return nil, err
	}
	return results, nil
}

// version reads the version byte of a format.
func (r *reader) version(format string, want byte) {
	if v := r.byte(); r.err == nil && v != want {
		r.fail(fmt.Errorf("%w: %s of version %d, this program reads %d", ErrVersion, format, v, want))
	}
}

// checkEnd returns the first error. Bytes that are left over are one.
func (r *reader) checkEnd() error {
	if r.err == nil && len(r.b) > 0 {
		r.damaged("bytes after the end")
	}
	return r.err
}

// The answer:
//
//	text caller, text request id, 16 bytes content, uvarint at, uvarint number of results, then each result
//
// A result is a byte Code, a byte State, a byte of resultFields, the fields it names, and the grants.
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

func appendAnswer(dst []byte, a *Answer) []byte {
	dst = append(appendText(appendText(dst, a.Caller), a.ID), a.Content[:]...)
	dst = binary.AppendUvarint(dst, uint64(a.At))
	dst = binary.AppendUvarint(dst, uint64(len(a.Results)))
	for i := range a.Results {
		dst = appendResult(dst, &a.Results[i])
	}
	return dst
}

func appendResult(dst []byte, r *Result) []byte {
	fields := byte(0)
	for bit, set := range [...]bool{
		r.Created, r.More, r.Serial != 0 || r.Partition != 0, r.Due != 0 || r.Until != 0, r.Count != 0, r.Wait != 0,
		len(r.Grants) > 0, r.Replayed,
	} {
		if set {
			fields |= 1 << bit
		}
	}
	dst = append(dst, byte(r.Code), byte(r.State), fields)
	if fields&resultJob != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Partition)), r.Serial)
	}
	if fields&resultTimes != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, unsigned(r.Due)), unsigned(r.Until))
	}
	if fields&resultCount != 0 {
		dst = binary.AppendUvarint(dst, r.Count)
	}
	if fields&resultWait != 0 {
		dst = binary.AppendUvarint(dst, unsigned(r.Wait))
	}
	if fields&resultGrants != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Grants)))
		for i := range r.Grants {
			dst = appendGrant(dst, &r.Grants[i])
		}
	}
	return dst
}

func appendGrant(dst []byte, g *Grant) []byte {
	dst = binary.AppendUvarint(appendText(dst, g.Queue), uint64(g.Partition))
	for _, v := range [...]uint64{g.Serial, g.Fence, uint64(g.Attempt), unsigned(g.Due), unsigned(g.Until)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func (r *reader) answer() Answer {
	a := Answer{Caller: r.text(), ID: r.text(), Content: r.array16(), At: r.time()}
	if n := r.length(3); n > 0 {
		a.Results = make([]Result, n)
	}
	for i := range a.Results {
		a.Results[i] = r.result()
	}
	return a
}

func (r *reader) result() Result {
	v := Result{Code: Code(r.byte()), State: State(r.byte())}
	fields := r.byte()
	v.Created, v.More, v.Replayed = fields&resultCreated != 0, fields&resultMore != 0, fields&resultReplayed != 0
	if fields&resultJob != 0 {
		v.Partition, v.Serial = r.uint32(), r.uvarint()
	}
	if fields&resultTimes != 0 {
		v.Due, v.Until = r.time(), r.time()
	}
	if fields&resultCount != 0 {
		v.Count = r.uvarint()
	}
	if fields&resultWait != 0 {
		v.Wait = r.duration()
	}
	if fields&resultGrants != 0 {
		v.Grants = r.grants()
	}
	return v
}

// grants reads the number of grants and the grants.
func (r *reader) grants() []Grant {
	n := r.length(7)
	if n == 0 {
		return nil
	}
	list := make([]Grant, n)
	for i := range list {
		list[i] = Grant{
			Queue: r.text(), Partition: r.uint32(), Serial: r.uvarint(), Fence: r.uvarint(), Attempt: r.uint32(),
			Due: r.time(), Until: r.time(),
		}
	}
	return list
}
