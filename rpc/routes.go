package rpc

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/naming"
	"github.com/belfrydb/belfry/rpc/spelling"
)

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
		belfryv1.File_belfry_v1_admin_proto, belfryv1.File_belfry_v1_schedule_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for k := range service.Methods().Len() {
				m := service.Methods().Get(k)
				out = append(out, method{
					procedure: "/" + string(service.FullName()) + "/" + string(m.Name()),
					short:     naming.Path(m.Name()),
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

// noSuchPath answers a path that leads nowhere. For what looks like a call it lists the methods
// there are, in the protocol of the call.
func (h *handler) noSuchPath(w http.ResponseWriter, r *http.Request) {
	f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
	f.Message = "there is nothing at " + fault.Quote([]byte(r.URL.Path)) + "; the methods are " + h.methodList
	near := naming.PathPrefix + spelling.Verb(strings.TrimPrefix(r.URL.Path, naming.PathPrefix))
	if near == naming.PathPrefix {
		near = spelling.Nearest(r.URL.Path, h.paths)
	}
	if near != "" {
		f.Message = "there is nothing at " + fault.Quote([]byte(r.URL.Path)) + "; did you mean " + near +
			"? The methods are " + h.methodList
	}
	h.writeFault(w, r, f)
}

// auditedMethods returns the procedures whose calls are all logged: Redrive, and those of
// AdminService and ScheduleService that change state or export everything. Their requests contain no
// secrets; the log leaves out the bodies of jobs.
func auditedMethods() map[string]bool {
	audited := map[string]bool{belfryv1connect.QueueServiceRedriveProcedure: true}
	for _, m := range methodsOfContract() {
		if !strings.HasPrefix(m.procedure, "/"+belfryv1connect.QueueServiceName+"/") && !m.reads {
			audited[m.procedure] = true
		}
	}
	return audited
}

// changingMethods returns the procedures that change state.
func changingMethods() map[string]bool {
	changing := map[string]bool{}
	for _, m := range methodsOfContract() {
		if !m.reads {
			changing[m.procedure] = true
		}
	}
	return changing
}
