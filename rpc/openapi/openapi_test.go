package openapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/belfrydb/belfry/client/belfrytest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/naming"
	"github.com/belfrydb/belfry/rpc/openapi"
)

// api is a server and the schemas of the document that it answers with.
type api struct {
	t       *testing.T
	url     string
	paths   map[string]any
	schemas *jsonschema.Compiler
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, url: belfrytest.Start(t).URL, schemas: jsonschema.NewCompiler()}
	status, text := a.send(http.MethodGet, openapi.Path, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", openapi.Path, status, text)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	paths, ok := document.(map[string]any)["paths"].(map[string]any)
	if !ok {
		t.Fatal("the document has no paths")
	}
	a.paths = paths
	a.schemas.AssertFormat()
	a.schemas.AssertContent()
	if err := a.schemas.AddResource("openapi.json", document); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) send(method, path, body string) (status int, answer []byte) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return response.StatusCode, text
}

// check reports what the schema at a place in the document has against a text.
func (a *api) check(place, text string) error {
	a.t.Helper()
	compiled, err := a.schemas.Compile("openapi.json#" + place)
	if err != nil {
		a.t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// place returns the place of a schema of a path: `part` is "requestBody", "responses/200" or
// "responses/default".
func place(path, part string) string {
	return "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/post/" + part + "/content/application~1json/schema"
}

// TestPathsAreThoseOfTheContract compares the paths with the methods that do not stream.
func TestPathsAreThoseOfTheContract(t *testing.T) {
	a := newAPI(t)
	for _, file := range []protoreflect.FileDescriptor{
		belfryv1.File_belfry_v1_queue_proto, belfryv1.File_belfry_v1_admin_proto,
		belfryv1.File_belfry_v1_schedule_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				m := methods.Get(k)
				path := naming.Path(m.Name())
				if _, described := a.paths[path]; described == (m.IsStreamingClient() || m.IsStreamingServer()) {
					t.Errorf("%s: described is %v", path, described)
				}
				delete(a.paths, path)
			}
		}
	}
	for path := range a.paths {
		t.Errorf("%s is no path of the contract", path)
	}
}

// TestAnswersAreAsDescribed makes calls to a real server, and checks that their requests and
// answers are what the document says.
func TestAnswersAreAsDescribed(t *testing.T) {
	a := newAPI(t)
	lease := func(text string) string {
		var answer struct{ Jobs []struct{ Lease string } }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Jobs) == 0 {
			t.Fatalf("no job was handed out: %s, %v", text, err)
		}
		return answer.Jobs[0].Lease
	}
	call := func(path, request string) string {
		t.Helper()
		status, answer := a.send(http.MethodPost, path, request)
		part := "responses/200"
		if status != http.StatusOK {
			part = "responses/default"
		}
		if err := a.check(place(path, "requestBody"), request); err != nil {
			t.Errorf("%s: its request %s: %v", path, request, err)
		}
		if err := a.check(place(path, part), string(answer)); err != nil {
			t.Errorf("%s: its answer %s: %v", path, answer, err)
		}
		return string(answer)
	}
	call("/v1/create-queue", `{"queue":"orders","partitions":2,"settings":{"maxAttempts":3,"retryDelays":["1s",60]}}`)
	call("/v1/update-queue", `{"queue":"orders","settings":{"ttr":"1m30s"}}`)
	call("/v1/put", `{"queue":"orders","id":"a","text":"close","delay":"30m","headers":{"by":"ann"}}`)
	call("/v1/put", `{"queue":"orders","id":"a","text":"another body"}`)
	call("/v1/put-batch", `{"jobs":[{"queue":"orders","data":"/w==","priority":-1},{"queue":"no queue"}]}`)
	call("/v1/get", `{"queue":"orders","id":"a"}`)
	call("/v1/get", `{"queue":"orders","id":"none"}`)
	call("/v1/list", `{"queue":"orders","state":"DELAYED"}`)
	call("/v1/reschedule", `{"queue":"orders","id":"a","delay":0}`)
	for range 2 {
		held := lease(call("/v1/reserve", `{"queues":["orders"],"wait":"5s"}`))
		call("/v1/extend", `{"lease":"`+held+`","ttr":"5m"}`)
		call("/v1/ack-batch", `{"leases":["`+held+`","no lease"]}`)
	}
	call("/v1/ack", `{"lease":"no lease"}`)
	call("/v1/cancel", `{"queue":"orders","id":"a"}`)
	call("/v1/get-queue", `{"queue":"orders"}`)
	call("/v1/list-queues", `{}`)
	call("/v1/get-cluster", `{}`)
	call("/v1/list-tokens", `{}`)
	call("/v1/list-namespaces", `{}`)
}

// TestWrongRequestsAreNotAsDescribed: what the server refuses by its form, the document forbids.
func TestWrongRequestsAreNotAsDescribed(t *testing.T) {
	a := newAPI(t)
	for _, request := range []string{
		`{"queue":"orders","body":"close"}`,
		`{"queue":"orders","text":"a","data":"YQ=="}`,
		`{"queue":"orders","data":"not base64!"}`,
		`{"queue":"orders","delay":"1s","dueAt":"2030-01-01T00:00:00Z"}`,
		`{"queue":"orders","dueAt":"tomorrow"}`,
		`{"queue":"orders","priority":"high"}`,
		`{"queue":["orders"]}`,
	} {
		if status, answer := a.send(http.MethodPost, "/v1/put", request); status != http.StatusBadRequest {
			t.Errorf("the server answered %s with %d %s", request, status, answer)
		}
		if a.check(place("/v1/put", "requestBody"), request) == nil {
			t.Errorf("the document allows %s", request)
		}
	}
}

func TestOnlyReading(t *testing.T) {
	a := newAPI(t)
	if status, _ := a.send(http.MethodPut, openapi.Path, "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("a PUT is answered with %d", status)
	}
}
