package payload

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// render returns the HTML of a node.
func render(t *testing.T, node g.Node) string {
	t.Helper()
	var out strings.Builder
	if err := node.Render(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestShow: each body has the forms that make sense of it, and shows what it has.
func TestShow(t *testing.T) {
	long := strings.Repeat("ä", ShownMax)
	for _, tt := range []struct {
		body, form, want, forms, has string
		shown                        int
	}{
		{`{"n":1}`, "", JSON, "json text hex", `<span class="number">1</span>`, 7},
		{`{"n":1}`, Text, Text, "json text hex", "{&#34;n&#34;:1}", 7},
		{`{"n":1}`, Hex, Hex, "json text hex", "7b 22 6e", 7},
		{`{"n":1`, JSON, Text, "text hex", "{&#34;n&#34;:1", 6},
		{"12", JSON, Text, "text hex", ">12<", 2},
		{"a\x00b", "", Hex, "hex text", "61 00 62", 3},
		{"\xff\xfe", Text, Text, "hex text", "��", 2},
		{"\u202eabc", "", Text, "text hex", "�abc", 6},
		{long, "", Text, "text hex", "ää", ShownMax}, {"x" + long, "", Text, "text hex", "xä", ShownMax - 1},
		{strings.Repeat("\xff", ShownMax), "", Hex, "hex text", "ff ff", ShownMax / 4},
		{"��", "", Text, "text hex", ">��<", 6},
		{"", "", Text, "text hex", "<pre", 0},
		{strings.Repeat("[", 100) + strings.Repeat("]", 100), JSON, Text, "text hex", "[[[", 200},
		{"[" + strings.Repeat("1,", treeValuesMax) + "1]", JSON, Text, "text hex", "[1,1", 2*treeValuesMax + 3},
	} {
		got := Show([]byte(tt.body), tt.form)
		html := render(t, got.Node)
		if got.Form != tt.want || !slices.Equal(got.Forms, strings.Fields(tt.forms)) || got.Shown != tt.shown ||
			!strings.Contains(html, tt.has) {
			t.Errorf("%.40q as %q: %s of %v, %d bytes, want %s of %s, %d bytes with %q: %.300s", tt.body, tt.form, got.Form,
				got.Forms, got.Shown, tt.want, tt.forms, tt.shown, tt.has, html)
		}
		if len(html) > 100<<10 {
			t.Errorf("%.40q: %d bytes of HTML", tt.body, len(html))
		}
	}
}

// TestTreeChangesNothing: numbers and strings are as they were written.
func TestTreeChangesNothing(t *testing.T) {
	for body, want := range map[string]string{
		`[9007199254740993]`:             `>9007199254740993<`,
		`[18446744073709551616]`:         `>18446744073709551616<`,
		`[0.10000000000000000000000001]`: `>0.10000000000000000000000001<`,
		`[1e999, -0.0]`:                  `>1e999</span></li><li><span class="number">-0.0<`,
		`["\ud800\/"]`:                   `>&#34;\ud800\/&#34;<`,
		`{"a":1,"a":2}`:                  `>&#34;a&#34;</span>: <span class="number">2<`,
		` { "b" : [ null , true ] } `:    `>&#34;b&#34;</span>: [<span class="count"> 2 </span>]`,
		`{"":{}, "x":[]}`:                `<li><span class="name">&#34;&#34;</span>: {}</li>`,
		`["<script>"]`:                   `>&#34;&lt;script&gt;&#34;<`,
	} {
		node, ok := Tree([]byte(body))
		if !ok {
			t.Errorf("%s is no tree", body)
			continue
		}
		if got := render(t, node); !strings.Contains(got, want) {
			t.Errorf("%s: want %s in %s", body, want, got)
		}
	}
}

// TestCommands: a shell gives curl the request as it is, and a person sees every character of it.
func TestCommands(t *testing.T) {
	const id = "it's $(id) \"x\" \u202e\U0001f514\n;"
	job := &belfryv1.Job{Queue: "q", Id: id, State: belfryv1.JobState_JOB_STATE_DELAYED}
	commands, err := Commands(job, "http://127.0.0.1:7400", "Authorization: Bearer $TOKEN")
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(commands, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }); i >= 0 {
		t.Errorf("character %q in %s", commands[i], commands)
	}
	const words = `curl() { for word; do printf '<%s>' "$word"; done; echo; }; TOKEN=t; `
	out, err := exec.CommandContext(t.Context(), "sh", "-c", words+commands).Output()
	of := func(method, more string) string {
		return `<http://127.0.0.1:7400/v1/` + method + `><-H><Authorization: Bearer t><-d><{` + more +
			`"id":"it's $(id) \"x\" \u202e\ud83d\udd14\n;","queue":"q"}>` + "\n"
	}
	want := of("get", `"ended":true,`) + of("reschedule", `"delay":"0s",`) + of("cancel", "")
	if err != nil || string(out) != want {
		t.Errorf("the shell reads\n%s, %v; want\n%s", out, err, want)
	}
	for state, want := range map[belfryv1.JobState]string{
		belfryv1.JobState_JOB_STATE_DEAD: "get redrive cancel", belfryv1.JobState_JOB_STATE_RESERVED: "get cancel",
		belfryv1.JobState_JOB_STATE_ACKED: "get",
	} {
		job := &belfryv1.Job{State: state}
		if state == belfryv1.JobState_JOB_STATE_ACKED {
			job.EndedAt = timestamppb.Now()
		}
		commands, err := Commands(job, "", "")
		if err != nil || strings.Count(commands, "curl ") != len(strings.Fields(want)) {
			t.Errorf("%v: %s, %v, want %s", state, commands, err, want)
		}
		for _, method := range strings.Fields(want) {
			if !strings.Contains(commands, "/v1/"+method+"'") {
				t.Errorf("%v: %s, want %s", state, commands, want)
			}
		}
	}
}
