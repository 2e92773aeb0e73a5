package wire

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Together is how many neighbours share a piece of memory. Fewer pieces cost less, but one that
// is kept for long keeps its neighbours' memory.
const Together = 8

// BytesAlone is the size from which a copy has memory of its own.
const BytesAlone = 256

// Pieces copies bytes, the small ones of neighbours into pieces of memory that they share.
type Pieces struct{ free []byte }

// Copy returns a copy of data. left is how many similar ones are to come, including this one.
func (p *Pieces) Copy(data []byte, left int) []byte {
	if len(data) >= BytesAlone || len(data) == 0 {
		return append(make([]byte, 0, len(data)), data...)
	}
	if cap(p.free)-len(p.free) < len(data) {
		p.free = make([]byte, 0, len(data)*min(left, Together))
	}
	start := len(p.free)
	p.free = append(p.free, data...)
	return p.free[start:len(p.free):len(p.free)]
}

// DurationsTogether is the longest list of durations that shares its memory.
const DurationsTogether = 16

// A DurationsDecoder decodes lists of durations. Those of neighbours are often equal, and often the
// default, which has seven. It keeps a reference to what it decoded last.
type DurationsDecoder struct {
	// Field is the number of the field that has the durations.
	Field protowire.Number

	data []byte          // the fields of the list before
	list []time.Duration // the decoded durations
	free []time.Duration // room for copies
}

// Decode appends the durations at the start of data to list, and removes them from data. left is how
// many lists are to come, including this one.
func (d *DurationsDecoder) Decode(list *[]time.Duration, data []byte, left int) (rest []byte, err error) {
	if len(d.data) == 0 || !bytes.HasPrefix(data, d.data) {
		if err := d.read(data); err != nil {
			return nil, err
		}
	}
	n := len(d.list)
	// The list has durations from another part of its message, or too many to share memory.
	if *list != nil || n > DurationsTogether {
		*list = append(*list, d.list...)
		return data[len(d.data):], nil
	}
	if len(d.free) < n {
		d.free = make([]time.Duration, n*min(left, Together))
	}
	*list, d.free = d.free[:n:n], d.free[n:]
	copy(*list, d.list)
	return data[len(d.data):], nil
}

// read decodes the durations at the start of data into the decoder.
func (d *DurationsDecoder) read(data []byte) error {
	d.data, d.list = nil, d.list[:0]
	rest := data
	for len(rest) > 0 {
		f, next, err := Next(rest)
		if err != nil {
			return err
		}
		if f.Number != d.Field {
			break
		}
		one, err := Duration(f.Bytes)
		if err != nil {
			return err
		}
		d.list, rest = append(d.list, one), next
	}
	d.data = data[:len(data)-len(rest)]
	return nil
}

// Entry decodes an entry of a map from string to string.
func Entry(data []byte) (name, value string, err error) {
	err = Each(data, func(f Field) error {
		switch f.Number {
		case 1:
			name = string(f.Bytes)
		case 2:
			value = string(f.Bytes)
		}
		return nil
	})
	return name, value, err
}

// A WitnessDecoder decodes the times of Witnesses. Those of neighbours are often equal. It keeps a
// reference to what it decoded last.
type WitnessDecoder struct {
	data []byte
	time time.Time
}

// Decode decodes the time of a Witness, and keeps a reference to data.
func (d *WitnessDecoder) Decode(data []byte) (t time.Time, err error) {
	if len(data) > 0 && bytes.Equal(data, d.data) {
		return d.time, nil
	}
	if t, err = witnessTime(data); err == nil {
		d.data, d.time = data, t
	}
	return t, err
}

// witnessTime decodes the time of a Witness.
func witnessTime(data []byte) (t time.Time, err error) {
	for len(data) > 0 {
		var f Field
		if f, data, err = Next(data); err != nil {
			return t, err
		}
		if f.Number == 5 {
			if t, err = Time(f.Bytes); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}
