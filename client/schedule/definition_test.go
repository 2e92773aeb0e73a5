package schedule

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestEveryFieldIsKnown: whatever field of a schedule changes, what the SDK makes of it changes, and a
// definition comes back as it went. So a field that the messages get later fails here.
func TestEveryFieldIsKnown(t *testing.T) {
	for _, oneof := range []string{"cron", "every", "text", "data"} { // what is set last stays set
		whole := &belfryv1.Schedule{}
		n := 0
		visit(whole.ProtoReflect(), "", func(field protoreflect.FieldDescriptor, path string, set func()) {
			if in := field.ContainingOneof(); in != nil && !in.IsSynthetic() &&
				excluded[oneof] == string(field.Name()) {
				return
			}
			n++
			before := scheduleOf(whole)
			set()
			if reflect.DeepEqual(before, scheduleOf(whole)) {
				t.Errorf("%s makes no difference", path)
			}
		})
		if n < 37 {
			t.Errorf("there are %d fields", n)
		}
		d := scheduleOf(whole).Definition
		spec, err := d.Spec.wire()
		if err != nil {
			t.Fatal(err)
		}
		job, err := d.Job.wire()
		if err != nil {
			t.Fatal(err)
		}
		again := &belfryv1.ScheduleJob{
			Ttr: job.GetTtr(), Ttl: job.GetTtl(), Priority: job.Priority, MaxAttempts: job.MaxAttempts, Key: job.GetKey(),
			Headers: job.GetHeaders(), RetryDelays: job.GetRetryDelays(), Body: whole.GetJob().GetBody(),
		}
		if body := whole.GetJob().GetText() + string(whole.GetJob().GetData()); body != string(job.GetData()) {
			t.Errorf("the body %q comes back as %q", body, job.GetData())
		}
		for _, pair := range [][2]proto.Message{
			{whole.GetSpec(), spec}, {whole.GetPolicy(), d.Policy.wire()}, {whole.GetJob(), again},
		} {
			if diff := cmp.Diff(pair[0], pair[1], protocmp.Transform()); diff != "" {
				t.Errorf("with %s, (-went +came back):\n%s", oneof, diff)
			}
		}
	}
}

// excluded names the other field of a oneof.
var excluded = map[string]string{"cron": "every", "every": "cron", "text": "data", "data": "text"}

// visit goes through all fields of a message, those of its messages too, and sets each in turn.
func visit(m protoreflect.Message, path string,
	leaf func(field protoreflect.FieldDescriptor, path string, set func())) {
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		path := path + "." + string(field.Name())
		ours := field.Message() != nil && !strings.HasPrefix(string(field.Message().FullName()), "google.")
		switch {
		case field.IsMap():
			leaf(field, path, func() {
				m.Mutable(field).Map().Set(protoreflect.ValueOf("k").MapKey(), protoreflect.ValueOf("v"))
			})
		case field.IsList() && ours:
			visit(m.Mutable(field).List().AppendMutable().Message(), path, leaf)
		case field.IsList():
			leaf(field, path, func() { m.Mutable(field).List().Append(sample(m.NewField(field).List().NewElement(), field)) })
		case ours:
			visit(m.Mutable(field).Message(), path, leaf)
		default:
			leaf(field, path, func() { m.Set(field, sample(m.NewField(field), field)) })
		}
	}
}

// sample returns a value that is not the zero value. empty is one of the field's type.
func sample(empty protoreflect.Value, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.MessageKind: // a time or a duration
		empty.Message().Set(field.Message().Fields().ByName("seconds"), protoreflect.ValueOf(int64(7)))
		return empty
	case protoreflect.BoolKind:
		return protoreflect.ValueOf(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOf("x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOf([]byte("y"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOf(protoreflect.EnumNumber(2))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOf(int64(-7))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOf(uint32(7))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOf(uint64(7))
	default:
		panic("no sample of " + field.Kind().String())
	}
}
