package rpc

import (
	"net/http"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/spelling"
)

// shortPrefix starts the paths for people: /v1/put stands for /belfry.v1.QueueService/Put.
const shortPrefix = "/v1/"

// method is one method of the contract as a path names it.
type method struct {
	procedure, short string
	// reads marks methods without side effects, which may be called with GET.
	reads, streams bool
}

// methodsOfContract lists the methods of our services in the order of the schema.
func methodsOfContract() []method {
	var out []method
	for _, file := range []protoreflect.FileDescriptor{belfryv1.File_belfry_v1_queue_proto,
		belfryv1.File_belfry_v1_admin_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for k := range service.Methods().Len() {
				m := service.Methods().Get(k)
				out = append(out, method{
					procedure: "/" + string(service.FullName()) + "/" + string(m.Name()),
					short:     shortPrefix + kebab(string(m.Name())),
					reads:     readsOnly(m),
					streams:   m.IsStreamingClient() || m.IsStreamingServer(),
				})
			}
		}
	}
	return out
}

// readsOnly reports whether a method is marked as one without side effects.
func readsOnly(m protoreflect.MethodDescriptor) bool {
	options, ok := m.Options().(interface {
		ProtoReflect() protoreflect.Message
	})
	if !ok {
		return false
	}
	r := options.ProtoReflect()
	field := r.Descriptor().Fields().ByName("idempotency_level")
	return field != nil && r.Get(field).Enum() == 1
}

// kebab writes a method's name as a path: "PutBatch" becomes "put-batch".
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// noSuchPath answers a path that leads nowhere. For what looks like a call it lists the methods
// there are, in the protocol of the call.
func (h *handler) noSuchPath(w http.ResponseWriter, r *http.Request) {
	f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
	f.Message = "there is nothing at " + fault.Quote([]byte(r.URL.Path)) + "; the methods are " + h.methodList
	near := shortPrefix + spelling.Verb(strings.TrimPrefix(r.URL.Path, shortPrefix))
	if near == shortPrefix {
		near = spelling.Nearest(r.URL.Path, h.paths)
	}
	if near != "" {
		f.Message = "there is nothing at " + fault.Quote([]byte(r.URL.Path)) + "; did you mean " + near +
			"? The methods are " + h.methodList
	}
	h.writeFault(w, r, f)
}

// auditedMethods returns the procedures whose calls are all logged: Redrive, and those of
// AdminService that change state or export everything. Their requests contain no bodies of jobs and
// no secrets.
func auditedMethods() map[string]bool {
	audited := map[string]bool{belfryv1connect.QueueServiceRedriveProcedure: true}
	for _, m := range methodsOfContract() {
		if strings.HasPrefix(m.procedure, "/"+belfryv1connect.AdminServiceName+"/") && !m.reads {
			audited[m.procedure] = true
		}
	}
	return audited
}
