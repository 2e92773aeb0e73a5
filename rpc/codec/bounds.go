package codec

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// Bounds finds messages with more elements than any valid request has, before they are decoded. An
// element of a list may have two bytes on the wire and a hundred in memory. bounds holds the
// request types by name, and is read-only.
type Bounds map[protoreflect.FullName]*shape

// countedBytesMin is the size from which elements are counted. Smaller messages cannot hold enough
// of them to matter.
const countedBytesMin = 8 << 10

// shape says where a message type has lists and maps.
type shape struct {
	fields []*bound
	// slots is the number of bounds here and in the messages inside.
	slots int
}

// bound is a field that is a list or a map, or that contains one.
type bound struct {
	number     protowire.Number
	json, text string // the field's names in JSON
	path       string // from the top of the message
	list, keys bool   // keys: it is a map
	numbers    bool   // it is a list of numbers or enums, which may be packed
	// most is how many elements the field may have in the whole message.
	most int
	// reason is the reason that the methods give for a list that is too long.
	reason belfryv1.Reason
	// slot is the index of the field's count.
	slot int
	// inner is the shape of the messages in the field, nil if they have no lists.
	inner *shape
}

// NewBounds returns the bounds of all requests of the contract.
func NewBounds(limits *check.Limits) Bounds {
	b := Bounds{}
	for _, file := range []protoreflect.FileDescriptor{belfryv1.File_belfry_v1_queue_proto,
		belfryv1.File_belfry_v1_admin_proto, belfryv1.File_belfry_v1_schedule_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				slots := 0
				input := methods.Get(k).Input()
				if s := shapeOf(limits, input, "", 1, &slots); s != nil {
					s.slots = slots
					b[input.FullName()] = s
				}
			}
		}
	}
	return b
}

// shapeOf returns the shape of a message type at a path that occurs at most times times; nil if it
// has no lists. Requests do not contain themselves.
func shapeOf(l *check.Limits, desc protoreflect.MessageDescriptor, path string, times int, slots *int) *shape {
	s := &shape{}
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		b := &bound{
			number: field.Number(), json: field.JSONName(), text: field.TextName(), path: fault.Join(path, field.JSONName()),
			list: field.IsList(), keys: field.IsMap(), numbers: isNumbers(field), slot: *slots,
		}
		inside := times
		if b.list || b.keys {
			*slots++
			b.most, b.reason = elements(l, field)
			b.most *= times
			inside = b.most
		}
		if field.Message() != nil && !b.keys {
			b.inner = shapeOf(l, field.Message(), b.path, inside, slots)
		}
		if b.list || b.keys || b.inner != nil {
			s.fields = append(s.fields, b)
		}
	}
	if len(s.fields) == 0 {
		return nil
	}
	return s
}

// isNumbers reports whether a field is a list of numbers. Decoders read it packed or not, however
// it was declared.
func isNumbers(field protoreflect.FieldDescriptor) bool {
	switch field.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return false
	default:
		return field.IsList()
	}
}

// elements returns how many elements a list or map of a request may have. A list that is not named
// here may have as many as a batch.
func elements(l *check.Limits, field protoreflect.FieldDescriptor) (most int, reason belfryv1.Reason) {
	switch field.Name() {
	case "queues":
		return l.QueuesMax, belfryv1.Reason_REASON_TOO_LARGE
	case "retry_delays":
		return l.RetryDelaysMax, belfryv1.Reason_REASON_INVALID
	case "headers":
		return l.HeaderBytesMax, belfryv1.Reason_REASON_TOO_LARGE // a name has at least one
	case "acks", "nacks", "releases", "extends":
		return l.StreamMessageBytesMax / actionBytesMin, belfryv1.Reason_REASON_TOO_LARGE
	default:
		return l.BatchJobsMax, belfryv1.Reason_REASON_TOO_LARGE
	}
}

// actionBytesMin is the smallest size of an action on a Work stream: two tags, two lengths and a
// lease for a queue of one letter.
const actionBytesMin = 18

// of returns the shape of a message whose elements are counted; nil for others.
func (b Bounds) of(data []byte, m proto.Message) *shape {
	if len(data) < countedBytesMin {
		return nil
	}
	return b[m.ProtoReflect().Descriptor().FullName()]
}

// CheckBinary returns a fault if a message in binary has too many elements.
func (b Bounds) CheckBinary(data []byte, m proto.Message) error {
	s := b.of(data, m)
	if s == nil {
		return nil
	}
	counts := make([]int, s.slots)
	s.countBinary(data, counts)
	return s.check(counts)
}

// json is binary for JSON.
func (b Bounds) json(data []byte, m proto.Message) error {
	s := b.of(data, m)
	if s == nil {
		return nil
	}
	j := jsonCount{rest: data, counts: make([]int, s.slots)}
	j.message(s)
	return s.check(j.counts)
}

// check returns a fault for the first field with too many elements, in the words with which the
// methods refuse such lists.
func (s *shape) check(counts []int) error {
	for _, b := range s.fields {
		if counts[b.slot] > b.most && (b.list || b.keys) {
			f := fault.TooMany(b.path, counts[b.slot], b.most)
			f.Reason = b.reason
			return f
		}
		if b.inner != nil {
			if err := b.inner.check(counts); err != nil {
				return err
			}
		}
	}
	return nil
}

// countBinary counts up to the first malformed byte, where the decoder will stop too. It returns
// false if there is one.
func (s *shape) countBinary(data []byte, counts []int) bool {
	for len(data) > 0 {
		number, kind, tagSize := protowire.ConsumeTag(data)
		if tagSize < 0 {
			return false
		}
		data = data[tagSize:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return false
		}
		switch b := s.numbered(number); {
		case b == nil:
		case b.numbers:
			counts[b.slot] += numbers(kind, data[:size])
		case kind == protowire.BytesType:
			if b.list || b.keys {
				counts[b.slot]++
			}
			if b.inner != nil {
				value, _ := protowire.ConsumeBytes(data)
				if !b.inner.countBinary(value, counts) {
					return false
				}
			}
		}
		data = data[size:]
	}
	return true
}

// numbers returns how many elements of a list of numbers a field holds. An unpacked field holds
// one. A packed one holds as many as there are bytes that end a varint. Requests have no lists of
// numbers of a fixed size.
func numbers(kind protowire.Type, value []byte) (n int) {
	switch kind {
	case protowire.VarintType:
		return 1
	case protowire.BytesType:
		packed, _ := protowire.ConsumeBytes(value)
		for _, b := range packed {
			if b < 0x80 {
				n++
			}
		}
	}
	return n
}

// numbered returns the bound of a field; nil if it has none.
func (s *shape) numbered(number protowire.Number) *bound {
	for _, b := range s.fields {
		if b.number == number {
			return b
		}
	}
	return nil
}

// named returns the bound of a field by either of its names in JSON; nil if it has none.
func (s *shape) named(name []byte) *bound {
	for _, b := range s.fields {
		if string(name) == b.json || string(name) == b.text {
			return b
		}
	}
	return nil
}
