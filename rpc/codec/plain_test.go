package codec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// plainTexts are texts of puts and of batches of puts, and whether plainDecode reads them.
func plainTexts() map[string]bool {
	return map[string]bool{
		`{"queue":"orders","text":"hello"}`:                             true,
		` { "queue" : "orders" , "text" : "" } ` + "\n":                 true,
		`{"queue":"a","text":"{\"n\":1}\n\\ \/\b\f\r\t","delay":"30s"}`: true,
		`{"queue":"a","text":"é😀","ttr":"0s","again":true}`:             true,
		`{"queue":"a","ifVersion":18446744073709551615,"priority":7}`:   true,
		`{"maxAttempts":0,"again": false}`:                              true,
		`{}`:                                                            true,
		`{"jobs":[{"queue":"a"},{"queue":"b","text":"x"},{}]}`:          true,
		`{"jobs":[],"requestId":"r"}`:                                   true,
		`{"queue":"a","queue":"b"}`:                                     false,
		`{"text":"a","data":"YQ=="}`:                                    false,
		`{"delay":"1s","dueAt":"2026-11-21T09:30:00Z"}`:                 false,
		`{"queue":"\u0041"}`:                                            false,
		`{"queue":"\x"}`:                                                false,
		`{"queue":"` + "\xff" + `"}`:                                    false,
		`{"text":"\n` + "\xff" + `"}`:                                   false,
		`{"queue":"` + "\n" + `"}`:                                      false,
		`{"queue":null}`:                                                false,
		`{"max_attempts":1}`:                                            false,
		`{"unknown":1}`:                                                 false,
		`{"maxAttempts":4294967296}`:                                    false,
		`{"priority":4294967295}`:                                       true,
		`{"priority":9007199254740992}`:                                 false,
		`{"priority":-1}`:                                               false,
		`{"priority":07}`:                                               false,
		`{"priority":1.0}`:                                              false,
		`{"priority":1e1}`:                                              false,
		`{"again":truer}`:                                               false,
		`{"delay":"05s"}`:                                               false,
		`{"delay":"1.5s"}`:                                              false,
		`{"delay":"5m"}`:                                                false,
		`{"delay":"s"}`:                                                 false,
		`{"delay":"1234567890s"}`:                                       false,
		`{"queue":"a"}{}`:                                               false,
		`{"queue":"a"`:                                                  false,
		`{"queue":"a",}`:                                                false,
		`{"queue":"a`:                                                   false,
		`{"queue":"a\`:                                                  false,
		`{"headers":{"a":"b"}}`:                                         false,
		`{"jobs":[{}`:                                                   false,
		`{"jobs":[{},]}`:                                                false,
		`{"retryDelays":["1s"]}`:                                        false,
	}
}

// TestPlainDecode: it reads what programs send, and leaves the rest.
func TestPlainDecode(t *testing.T) {
	for text, want := range plainTexts() {
		got := false
		for _, m := range []proto.Message{&belfryv1.PutRequest{}, &belfryv1.PutBatchRequest{}} {
			got = plainAgrees(t, []byte(text), m) || got
		}
		if got != want {
			t.Errorf("%s: it is read: %v, want %v", text, got, want)
		}
	}
}

// plainAgrees reports whether plainDecode reads a text. It fails the test if protojson refuses that
// text or gives it another meaning.
func plainAgrees(t *testing.T, text []byte, m proto.Message) bool {
	t.Helper()
	if !plainDecode(text, m) {
		return false
	}
	strict := m.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal(text, strict); err != nil {
		t.Errorf("%q is read as %v; protojson: %v", text, m, err)
	} else if diff := cmp.Diff(strict, m, protocmp.Transform()); diff != "" {
		t.Errorf("%q: %s", text, diff)
	}
	return true
}

// FuzzPlainDecode compares plainDecode with protojson.
func FuzzPlainDecode(f *testing.F) {
	for text := range plainTexts() {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"queues":["a","b"],"wait":"30s","maxJobs":10}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range []proto.Message{
			&belfryv1.PutRequest{}, &belfryv1.PutBatchRequest{}, &belfryv1.ReserveRequest{}, &belfryv1.NackRequest{},
		} {
			plainAgrees(t, text, m)
		}
	})
}

// TestAppendTyped compares the JSON of answers that are written without descriptors with the general
// one: without fields, and with all fields.
func TestAppendTyped(t *testing.T) {
	for _, m := range []proto.Message{&belfryv1.Witness{}, &belfryv1.PutResponse{}, &belfryv1.AckResponse{}} {
		for range 2 {
			want, err := appendMessage([]byte("x"), m.ProtoReflect())
			if err != nil {
				t.Fatal(err)
			}
			got, err := AppendJSON([]byte("x"), m.ProtoReflect())
			if err != nil || string(got) != string(want) {
				t.Errorf("%T: %s, %v; want %s", m, got, err, want)
			}
			fillAll(m.ProtoReflect(), 1)
		}
	}
}

// fillAll sets all scalar fields of a message and of the messages in it.
func fillAll(m protoreflect.Message, n int64) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		n++
		switch field := fields.Get(i); field.Kind() {
		case protoreflect.MessageKind:
			fillAll(m.Mutable(field).Message(), n)
		case protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString("a\"\n"+string(field.Name())))
		case protoreflect.EnumKind:
			m.Set(field, protoreflect.ValueOfEnum(1))
		case protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
		case protoreflect.Int32Kind:
			m.Set(field, protoreflect.ValueOfInt32(int32(n))) //nolint:gosec // small
		case protoreflect.Int64Kind:
			m.Set(field, protoreflect.ValueOfInt64(n))
		case protoreflect.Uint32Kind:
			m.Set(field, protoreflect.ValueOfUint32(uint32(n))) //nolint:gosec // small
		case protoreflect.Uint64Kind:
			m.Set(field, protoreflect.ValueOfUint64(uint64(n))) //nolint:gosec // small
		default:
			panic(field.FullName())
		}
	}
}

// BenchmarkJSON is a put and its answer as JSON.
func BenchmarkJSON(b *testing.B) {
	put, answer := []byte(`{"queue":"orders","text":"hello","delay":"30s"}`), &belfryv1.PutResponse{}
	fillAll(answer.ProtoReflect(), 1)
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := JSON().Unmarshal(put, &belfryv1.PutRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("answer", func(b *testing.B) {
		b.ReportAllocs()
		dst := []byte(nil)
		for b.Loop() {
			var err error
			if dst, err = AppendJSON(dst[:0], answer.ProtoReflect()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
