package admin

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestAdminKnowsEveryField: whatever field of an answer changes, down to the last one, what the SDK
// makes of it changes, and settings come back as they went.
func TestAdminKnowsEveryField(t *testing.T) {
	for _, tt := range []struct {
		message proto.Message
		read    func(proto.Message) any
	}{
		{&belfryv1.Queue{}, func(m proto.Message) any { return queueStateOf(m.(*belfryv1.Queue)) }},
		{&belfryv1.GetClusterResponse{}, func(m proto.Message) any { return clusterOf(m.(*belfryv1.GetClusterResponse)) }},
		{&belfryv1.Key{}, func(m proto.Message) any { return keyOf(m.(*belfryv1.Key)) }},
		{&belfryv1.Task{}, func(m proto.Message) any { return taskOf(m.(*belfryv1.Task)) }},
		{&belfryv1.QueueSettings{}, func(m proto.Message) any { return settingsOf(m.(*belfryv1.QueueSettings)) }},
	} {
		name := tt.message.ProtoReflect().Descriptor().Name()
		n := 0
		visit(tt.message.ProtoReflect(), "", func(path string, set func()) {
			n++
			before := tt.read(tt.message)
			set()
			if reflect.DeepEqual(before, tt.read(tt.message)) {
				t.Errorf("%s%s makes no difference", name, path)
			}
		})
		if n < 9 {
			t.Errorf("%s has %d fields", name, n)
		}
		if settings, ok := tt.message.(*belfryv1.QueueSettings); ok { // now all are set
			whole := settingsOf(settings)
			if again, err := whole.wire(); err != nil || !proto.Equal(again, settings) {
				t.Errorf("%v comes back as %v, %v", settings, again, err)
			}
		}
	}
}

// visit goes through all fields of a message, those of its messages too, and sets each in turn.
func visit(m protoreflect.Message, path string, leaf func(path string, set func())) {
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		path := path + "." + string(field.Name())
		switch {
		case field.IsList() && field.Message() != nil && !strings.HasPrefix(string(field.Message().FullName()), "google."):
			visit(m.Mutable(field).List().AppendMutable().Message(), path, leaf)
		case field.IsList():
			leaf(path, func() {
				if list := m.Mutable(field).List(); field.Message() != nil {
					list.AppendMutable().Message().Set(field.Message().Fields().ByName("seconds"), protoreflect.ValueOf(int64(7)))
				} else {
					list.Append(sample(field))
				}
			})
		case field.Message() != nil && !strings.HasPrefix(string(field.Message().FullName()), "google."):
			visit(m.Mutable(field).Message(), path, leaf)
		case field.Message() != nil:
			leaf(path, func() {
				m.Mutable(field).Message().Set(field.Message().Fields().ByName("seconds"), protoreflect.ValueOf(int64(7)))
			})
		default:
			leaf(path, func() { m.Set(field, sample(field)) })
		}
	}
}

// sample returns a value that is not the zero value.
func sample(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOf(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOf("x")
	case protoreflect.EnumKind:
		return protoreflect.ValueOf(protoreflect.EnumNumber(2))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOf(uint32(7))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOf(uint64(7))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOf(7.5)
	default:
		panic("no sample of " + field.Kind().String())
	}
}

func TestQueueSettingsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		settings QueueSettings
		want     string
	}{
		{QueueSettings{MaxJobs: new(-1)}, "MaxJobs: -1; it is 0 to 4294967295"},
		{QueueSettings{PutsPerSecond: new(1 << 32)}, "PutsPerSecond: 4294967296; it is 0 to 4294967295"},
		{QueueSettings{MaxBytes: new(int64(-1))}, "MaxBytes: -1; it is at least 0"},
		{QueueSettings{ExpireTo: "gone"}, `ExpireTo: "gone"; it is GONE or DEAD`},
		{QueueSettings{Overdue: &OverduePolicy{
			Mode: "SPRED", Period: time.Minute,
		}}, `Overdue: there is no mode "SPRED"; the modes are FIRE, SPREAD and DROP`},
	} {
		if _, err := tt.settings.wire(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.settings, err, tt.want)
		}
	}
	if wire, err := (*QueueSettings)(nil).wire(); wire != nil || err != nil {
		t.Errorf("none: %v, %v", wire, err)
	}
}
