package youzan

import (
	"fmt"
	"slices"
)

// ValueBytesMax is the length of the longest value that is read or written, 16 MiB. It is far above
// Belfry's longest body, so that a job that is too long for Belfry can still be named by its id.
const ValueBytesMax = 16 << 20

// The keys of the map.
const (
	keyTopic = "1"
	keyID    = "2"
	keyDue   = "3"
	keyTTR   = "4"
	keyBody  = "5"
)

// A Job is what a server keeps of a job. Whether its numbers make sense is for the caller to judge.
type Job struct {
	Topic string
	ID    string // also the name of the key; what another key holds is not this job
	Due   int64  // when it is first due, in Unix seconds; a delivery does not change it
	TTR   int64  // the length of its leases, in seconds
	Body  string // any bytes
}

// Append appends the job to b as a server writes it: the keys in order, every number and length in
// its shortest form. It is an error if that takes more than ValueBytesMax; then b is returned as it
// was.
func (j Job) Append(b []byte) ([]byte, error) {
	v := append(b, fixmap|5)
	v = appendText(appendText(v, keyTopic), j.Topic)
	v = appendText(appendText(v, keyID), j.ID)
	v = appendNumber(appendText(v, keyDue), j.Due)
	v = appendNumber(appendText(v, keyTTR), j.TTR)
	v = appendText(appendText(v, keyBody), j.Body)
	if n := len(v) - len(b); n > ValueBytesMax {
		return b, fmt.Errorf("youzan: writing job %.64q: it takes %d bytes, at most %d", j.ID, n, ValueBytesMax)
	}
	return v, nil
}

// Begins reports whether the first byte of a value is one that Parse takes.
func Begins(value string) bool {
	return value != "" && (value[0]&0xf0 == fixmap || value[0] == map16)
}

// Parse reads the value of a job. The keys may come in any order, numbers and lengths in any form
// of msgpack. A value that no server writes is an error: a repeated key, an unknown key, a missing
// topic, id, due second or TTR, bytes after the end. A missing body is empty, as servers read it.
func Parse(value []byte) (Job, error) {
	if len(value) > ValueBytesMax {
		return Job{}, fmt.Errorf("youzan: a value of %d bytes: at most %d are read", len(value), ValueBytesMax)
	}
	r := reader{value: value}
	var j Job
	var read []string
	for n := r.entries(); n > 0 && r.err == nil; n-- {
		key := r.text()
		if slices.Contains(read, key) {
			r.fail("key %q comes twice", key)
		}
		read = append(read, key)
		switch key {
		case keyTopic:
			j.Topic = r.text()
		case keyID:
			j.ID = r.text()
		case keyDue:
			j.Due = r.number()
		case keyTTR:
			j.TTR = r.number()
		case keyBody:
			j.Body = r.text()
		default:
			r.fail("no job has a key %.20q", key)
		}
	}
	for _, key := range []string{keyTopic, keyID, keyDue, keyTTR} {
		if !slices.Contains(read, key) {
			r.fail("key %q is missing", key)
		}
	}
	if r.at < len(value) {
		r.fail("%d bytes follow its end", len(value)-r.at)
	}
	if r.err != nil {
		return Job{}, fmt.Errorf("youzan: a value of %d bytes: %w", len(value), r.err)
	}
	return j, nil
}
