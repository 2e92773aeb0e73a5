package schedules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// content is what a schedule consists of.
type content struct {
	spec   *belfryv1.ScheduleSpec
	policy *belfryv1.SchedulePolicy
	job    *belfryv1.ScheduleJob
}

// parts returns the parts of a content in their order, by their keys in a file.
func (c content) parts() (keys []string, messages []protoreflect.Message) {
	return []string{keySpec, keyPolicy, keyJob},
		[]protoreflect.Message{c.spec.ProtoReflect(), c.policy.ProtoReflect(), c.job.ProtoReflect()}
}

// defaults returns the values that fields have which are not set, where the server answers with such
// values.
func defaults() content {
	return content{
		spec: &belfryv1.ScheduleSpec{Dst: belfryv1.DST_DST_ONCE},
		policy: &belfryv1.SchedulePolicy{
			CatchUp: belfryv1.CatchUp_CATCH_UP_LATEST, Window: durationpb.New(24 * time.Hour),
			Overlap: belfryv1.Overlap_OVERLAP_ALLOW,
		},
		job: &belfryv1.ScheduleJob{},
	}
}

// full returns a copy of a content with the defaults of what is not set.
func (c content) full() content {
	d := defaults()
	proto.Merge(d.spec, c.spec)
	proto.Merge(d.policy, c.policy)
	proto.Merge(d.job, c.job)
	for _, zero := range []**durationpb.Duration{&d.spec.Phase, &d.spec.Jitter} {
		if (*zero).AsDuration() == 0 {
			*zero = nil
		}
	}
	return d
}

// trimmed returns a copy of a content without what is a default.
func (c content) trimmed() content {
	out := c.full()
	_, have := out.parts()
	_, normal := defaults().parts()
	for i, m := range have {
		normal[i].Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			if value.Equal(m.Get(field)) {
				m.Clear(field)
			}
			return true
		})
	}
	return out
}

// put returns the request that puts a content. Its body is one of bytes, as that of all verbs.
func (c content) put(queue, name string) *belfryv1.PutScheduleRequest {
	return &belfryv1.PutScheduleRequest{
		Queue: queue, Name: name, Spec: c.spec, Policy: c.policy, Job: &belfryv1.PutRequest{
			Ttr: c.job.Ttr, Priority: c.job.Priority, Body: &belfryv1.PutRequest_Data{Data: bodyOf(c.job)},
			Headers: c.job.Headers, MaxAttempts: c.job.MaxAttempts, RetryDelays: c.job.RetryDelays, Ttl: c.job.Ttl,
			Key: c.job.Key,
		},
	}
}

// bodyOf returns the body of a job, whichever form it has.
func bodyOf(job *belfryv1.ScheduleJob) []byte {
	if text := job.GetText(); text != "" {
		return []byte(text)
	}
	return job.GetData()
}

// property is a field of a content.
type property struct {
	path string
	// rank is its place among the fields.
	rank int
	// exact is its value. text is what a person sees of it, if that is something else.
	exact, text string
}

// shown returns what a person sees of a property; "" of none.
func (p *property) shown() string {
	switch {
	case p == nil:
		return ""
	case p.exact == "": // of a header
		return `""`
	case p.text != "":
		return p.text
	default:
		return p.exact
	}
}

// properties returns the fields of a content that are set, those with defaults included, in their order.
func (c content) properties() []property {
	c = c.full()
	var all []property
	keys, messages := c.parts()
	for i, m := range messages {
		fields := m.Descriptor().Fields()
		for n := range fields.Len() {
			field := fields.Get(n)
			if name := field.Name(); m.Has(field) && name != "text" && name != "data" {
				rank := 1000*i + n
				all = append(all, propertiesOf(field, m.Get(field), property{
					path: keys[i] + "." + field.JSONName(), rank: rank,
				})...)
			}
		}
	}
	if body := bodyOf(c.job); len(body) > 0 {
		all = append(all, property{path: "job.body", rank: 2999, exact: string(body)})
	}
	return all
}

// propertiesOf returns the properties that a field is: one for each text of a map.
func propertiesOf(field protoreflect.FieldDescriptor, value protoreflect.Value, p property) (all []property) {
	switch {
	case field.IsMap():
		value.Map().Range(func(key protoreflect.MapKey, text protoreflect.Value) bool {
			all = append(all, property{path: p.path + "." + key.String(), rank: p.rank, exact: text.String()})
			return true
		})
		slices.SortFunc(all, func(a, b property) int { return cmp.Compare(a.path, b.path) })
		return all
	case field.IsList():
		var texts []string
		for i := range value.List().Len() {
			texts = append(texts, textOf(field, value.List().Get(i)))
		}
		p.exact, p.text = fmt.Sprintf("%q", texts), strings.Join(texts, ", ")
	default:
		p.exact = textOf(field, value)
	}
	return []property{p}
}

// textOf writes a value as a file has it.
func textOf(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch field.Kind() {
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
		if named := values.ByNumber(value.Enum()); named != nil {
			return strings.TrimPrefix(string(named.Name()), prefix)
		}
		return fmt.Sprint(value.Enum())
	case protoreflect.MessageKind:
		switch m := value.Message().Interface().(type) {
		case *durationpb.Duration:
			return exactly(m.AsDuration())
		case *timestamppb.Timestamp:
			return utc(m)
		}
	}
	return value.String()
}

// exactly writes a duration in the shortest form that has all of it: 15m, not 15m0s.
func exactly(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// difference is a field that a change gives another value. Old or New is empty if it has none.
type difference struct {
	Field string `json:"field"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// differences returns the fields in which two contents differ, in their order.
func differences(before, after content) []difference {
	type both struct{ old, new *property }
	found := map[string]*both{}
	var order []*property
	note := func(list []property, side func(*both) **property) {
		for i := range list {
			p := &list[i]
			if found[p.path] == nil {
				found[p.path] = &both{}
				order = append(order, p)
			}
			*side(found[p.path]) = p
		}
	}
	note(before.properties(), func(b *both) **property { return &b.old })
	note(after.properties(), func(b *both) **property { return &b.new })
	slices.SortStableFunc(order, func(a, b *property) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.path, b.path))
	})
	var all []difference
	for _, p := range order {
		b := found[p.path]
		if b.old == nil || b.new == nil || b.old.exact != b.new.exact {
			all = append(all, differenceOf(p.path, b.old, b.new))
		}
	}
	return all
}

// shownColumns is how much of a value is shown.
const shownColumns = 60

// differenceOf shows how a property changes. Values that begin alike are shown from where they differ.
func differenceOf(path string, before, after *property) difference {
	was, is := before.shown(), after.shown()
	d := difference{Field: path, Old: clipped(was), New: clipped(is)}
	if d.Old != d.New {
		return d
	}
	from := 0
	for from < min(len(was), len(is)) && was[from] == is[from] {
		from++
	}
	for from > 0 && from < len(was) && !utf8.RuneStart(was[from]) {
		from--
	}
	d.Old, d.New = afterByte(was, from), afterByte(is, from)
	return d
}

// afterByte shows a value from a byte on.
func afterByte(text string, from int) string {
	rest := ""
	if from < len(text) {
		rest = clipped(text[from:])
	}
	return fmt.Sprintf("(%s) …%s", render.Size(uint64(len(text))), rest)
}

// clipped shows the beginning of a value on one line.
func clipped(text string) string {
	return render.Preview([]byte(text), shownColumns)
}
