package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// ErrDamaged says that a file holds something that Write did not write.
var ErrDamaged = errors.New("the history is damaged")

// packageName is that of the messages.
const packageName = "belfry.v1"

// head is the first line of a file.
type head struct {
	Start time.Time `json:"start"`
}

// line is a call as a line of JSON.
type line struct {
	Client   string          `json:"client"`
	Node     string          `json:"node"`
	Workload string          `json:"workload"`
	Token    string          `json:"token,omitempty"`
	Forged   bool            `json:"forged,omitempty"`
	Invoked  time.Duration   `json:"invokedNs"`
	Returned time.Duration   `json:"returnedNs"`
	Call     string          `json:"call"`
	Request  json.RawMessage `json:"request"`
	Outcome  string          `json:"outcome"`
	Response json.RawMessage `json:"response,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Message  string          `json:"message,omitempty"`
	Witness  json.RawMessage `json:"witness,omitempty"`
}

// Write writes the history as lines of JSON: the start, and then each call in the order in which
// they were sent.
func (h *History) Write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<20)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(head{h.Start}); err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}
	for _, o := range h.Ops() {
		l, err := lineOf(o)
		if err != nil {
			return err
		}
		if err := lines.Encode(l); err != nil {
			return fmt.Errorf("writing the history: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}
	return nil
}

func lineOf(o *Op) (line, error) {
	l := line{
		Client: o.Client, Node: o.Node, Workload: o.Workload, Token: o.Token, Forged: o.Forged, Invoked: o.Invoked,
		Returned: o.Returned,
		Call:     strings.TrimSuffix(string(o.Request.ProtoReflect().Descriptor().Name()), "Request"),
		Outcome:  o.Outcome.String(), Message: o.Message,
	}
	if o.Reason != belfryv1.Reason_REASON_UNSPECIFIED {
		l.Reason = o.Reason.String()
	}
	for _, part := range []struct {
		to   *json.RawMessage
		from proto.Message
	}{{&l.Request, o.Request}, {&l.Response, o.Response}, {&l.Witness, o.Witness}} {
		if part.from == nil || !part.from.ProtoReflect().IsValid() {
			continue
		}
		b, err := protojson.Marshal(part.from)
		if err != nil {
			return l, fmt.Errorf("writing a call of %s: %w", o.Client, err)
		}
		*part.to = b
	}
	return l, nil
}

// Read reads what Write wrote.
func Read(r io.Reader) (*History, error) {
	in := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	in.DisallowUnknownFields()
	var first head
	if err := in.Decode(&first); err != nil {
		return nil, fmt.Errorf("%w: its first line: %w", ErrDamaged, err)
	}
	h := &History{Start: first.Start}
	for {
		var l line
		err := in.Decode(&l)
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrDamaged, len(h.ops)+2, err)
		}
		o, err := l.op()
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrDamaged, len(h.ops)+2, err)
		}
		h.ops = append(h.ops, o)
	}
}

// op is the inverse of lineOf.
func (l *line) op() (*Op, error) {
	outcome, known := belfryv1.Outcome_value[l.Outcome]
	reason, knownReason := belfryv1.Reason_value[l.Reason]
	if !known || l.Reason != "" && !knownReason {
		return nil, fmt.Errorf("there is no outcome %q with the reason %q", l.Outcome, l.Reason)
	}
	o := &Op{
		Client: l.Client, Node: l.Node, Workload: l.Workload, Token: l.Token, Forged: l.Forged, Invoked: l.Invoked,
		Returned: l.Returned,
		Outcome:  belfryv1.Outcome(outcome), Reason: belfryv1.Reason(reason), Message: l.Message,
	}
	if (l.Response != nil) != (o.Outcome == belfryv1.Outcome_OUTCOME_APPLIED) {
		return nil, fmt.Errorf("the outcome is %s, with an answer: %t", l.Outcome, l.Response != nil)
	}
	var err error
	if o.Request, err = parse(l.Call+"Request", l.Request); err != nil {
		return nil, err
	}
	if l.Response != nil {
		if o.Response, err = parse(l.Call+"Response", l.Response); err != nil {
			return nil, err
		}
	}
	if l.Witness != nil {
		o.Witness = &belfryv1.Witness{}
		if err := protojson.Unmarshal(l.Witness, o.Witness); err != nil {
			return nil, fmt.Errorf("its witness: %w", err)
		}
	}
	return o, nil
}

func parse(name string, b []byte) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(packageName + "." + protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("a message %q: %w", name, err)
	}
	m := kind.New().Interface()
	if err := protojson.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("its %s: %w", name, err)
	}
	return m, nil
}
