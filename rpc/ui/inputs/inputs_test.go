package inputs

import (
	"net/url"
	"strings"
	"testing"

	g "maragu.dev/gomponents"

	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// html draws a node.
func html(t *testing.T, node g.Node) string {
	t.Helper()
	var out strings.Builder
	if err := node.Render(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestForms: an input has its first value, and after a refusal what was typed; the one to blame is
// marked.
func TestForms(t *testing.T) {
	rows := func(f *Forms) string {
		return html(t, g.Group{
			f.Kept(Row{Label: "A", Name: "a", Value: "1", Help: "a number"}),
			f.Row(Row{Label: "B", Name: "b", Value: "yes", Choices: []string{"no", "yes"}}),
			f.Row(Row{Label: "C", Name: "c", Lines: "3"}), f.Field("D", "d"),
		})
	}
	refused := &Forms{Problem: &outcome.Problem{Field: "a", Reason: "INVALID", Text: "a: <no>"},
		Posted: url.Values{"a": {`"2"`}, "before.a": {"0"}, "b": {"no"}, "c": {"<c>"}, "d": {"4"}}}
	for text, wants := range map[string][]string{
		rows(&Forms{}): {`name="a" aria-describedby="a-help" value="1"`, `name="before.a" value="1"`,
			`<option value="yes" selected>`, "\n</textarea>", `name="d" value=""`},
		rows(refused): {`name="a" aria-invalid="true" aria-describedby="a-help" value="&#34;2&#34;"`,
			`name="before.a" value="0"`, `<option value="no" selected>`, "\n&lt;c&gt;</textarea>", `name="d" value="4"`},
		html(t, refused.Warning()): {"<strong>INVALID </strong>", "a: &lt;no&gt;", `href="#a"`},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("want %s in %s", want, text)
			}
		}
	}
}

// TestRequestID: each form that is shown has an id of its own, but for one of which it is not known
// whether it was carried out.
func TestRequestID(t *testing.T) {
	sent := func(f *Forms) string {
		f.Posted = url.Values{"requestId": {"before"}}
		return html(t, f.RequestID())
	}
	const same = `value="before"`
	for what, text := range map[string]string{
		"a first form": sent(&Forms{}), "a refused form": sent(&Forms{Problem: &outcome.Problem{}}),
	} {
		if strings.Contains(text, same) {
			t.Errorf("%s: %s", what, text)
		}
	}
	if text := sent(&Forms{Problem: &outcome.Problem{Unknown: true}}); !strings.Contains(text, same) {
		t.Errorf("of unknown outcome: %s", text)
	}
	if first, second := sent(&Forms{}), sent(&Forms{}); first == second {
		t.Error("two forms have one id")
	}
}
