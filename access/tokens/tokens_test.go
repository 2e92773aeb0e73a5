package tokens

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// textBytes is how long each token is.
const textBytes = len(prefix) + 16 + 1 + 43

// TestToken: what is made is read again, and what is kept of it does not tell what it is.
func TestToken(t *testing.T) {
	text, id, hash := New()
	gotID, gotHash, err := Parse(text)
	if err != nil || gotID != id || !gotHash.Equal(hash) || !ValidID(id) || !hash.Valid() {
		t.Fatalf("%q is read as %q, %q, %v; want %q, %q", text, gotID, gotHash, err, id, hash)
	}
	if len(text) != textBytes || strings.Contains(text, string(hash)) {
		t.Errorf("the token %q and what is kept of it, %q", text, hash)
	}
	other, _, _ := New()
	if _, otherHash, err := Parse(other); err != nil || otherHash.Equal(hash) {
		t.Errorf("two tokens have one hash, or %v", err)
	}
	changed := text[:len(text)-2] + "AA"
	if strings.HasSuffix(text, "AA") {
		changed = text[:len(text)-2] + "BA"
	}
	if _, changedHash, err := Parse(changed); err == nil && changedHash.Equal(hash) {
		t.Errorf("%q and %q have one hash", text, changed)
	}
}

// FuzzParse: nothing that a stranger sends as a token does harm, and what is taken for one is
// written in one way only.
func FuzzParse(f *testing.F) {
	text, _, _ := New()
	for _, seed := range []string{"", prefix, text, strings.ToUpper(text), text + "_", strings.Repeat("a", 1000),
		"belfry__", strings.Replace(text, "_", "__", 1), text[:20] + "\n" + text[20:], text[:60] + "\r" + text[60:]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, hash, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || id != "" || hash != "" {
				t.Errorf("%q: %q, %q, %v", text, id, hash, err)
			}
			return
		}
		if !ValidID(id) || !hash.Valid() || !strings.HasPrefix(text, prefix+id+"_") || len(text) != textBytes ||
			strings.ContainsAny(text, "\r\n ") {
			t.Errorf("%q is read as %q, %q", text, id, hash)
		}
	})
}

func TestScopes(t *testing.T) {
	scopes := func(texts ...string) (all Scopes) {
		for _, text := range texts {
			s, err := ParseScope(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		return all
	}
	for _, test := range []struct {
		scopes Scopes
		action Action
		queue  string
		want   bool
	}{
		{scopes("put:orders"), Put, "orders", true},
		{scopes("put:orders"), Put, "orders2", false},
		{scopes("put:orders"), Consume, "orders", false},
		{scopes("put:orders"), Admin, "orders", false},
		{scopes("put,consume:orders"), Consume, "orders", true},
		{scopes("put:shop/*"), Put, "shop/a", true},
		{scopes("put:shop/*"), Put, "shop", false},
		{scopes("put:shop*"), Put, "shopping", true},
		{scopes("put:a*", "consume:b*"), Consume, "b", true},
		{scopes("put:a*", "consume:b*"), Consume, "a", false},
		{scopes("admin:a*"), Put, "ab", true},
		{scopes("admin:a*"), Admin, "b", false},
		{scopes("admin:*"), Admin, "b", true},
		{nil, Put, "a", false},
	} {
		if got := test.scopes.Allow(test.action, test.queue); got != test.want {
			t.Errorf("%v allow %s on %s: %v, want %v", test.scopes, test.action, test.queue, got, test.want)
		}
	}
	if s := scopes("put:a*"); s.AllowView("b") || !s.AllowView("ab") {
		t.Error("looking is allowed by any scope of the queue, and by no other")
	}
	for text, want := range map[string]string{"admin:*": "view admin", "view:*": "view", "put,consume:*": "",
		"admin:a*": "", "view:a*": ""} {
		var got []string
		for _, action := range []Action{View, Admin} {
			if scopes(text).AllowCluster(action) {
				got = append(got, string(action))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s allows %v of what concerns all queues, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "put", "put:", "get:orders", ":orders", "put:a*b", "put:**", "put,:a", "put:a b",
		"put:" + strings.Repeat("a", 258), "put:a,b"} {
		if s, err := ParseScope(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
	if got := scopes("consume,put,put:a*")[0].String(); got != "consume,put:a*" {
		t.Errorf("a scope is written %q", got)
	}
}

// TestScopesOfNoQueue: a pattern that no queue's name fits is refused with its scope and why,
// unless it is kept already.
func TestScopesOfNoQueue(t *testing.T) {
	for text, want := range map[string]string{
		"put:a/b/c": `no queue can be meant by "a/b/c" in scope "put:a/b/c": a queue's name is name or namespace/name, ` +
			`with one slash at most`,
		"put:a/b/*": "one slash at most", "put:/a": "no part of a queue's name is empty", "put:/*": "is empty",
		"put:a/": "is empty", "put:./*": "is empty",
		"put:../x": "is empty", "put:..": "is empty", "put:a$b": "only letters, digits", "put:a$*": "only letters, digits",
		"put:" + strings.Repeat("a", 257):        "at most 256 bytes",
		"put:" + strings.Repeat("a", 255) + "/*": "at most 256 bytes",
		"put: orders":                            `there is a blank in the queues " orders" of scope "put: orders"`,
		"put:a b*":                               "there is a blank", "put:a\t": "there is a blank",
	} {
		if s, err := ParseScope(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %v, %v; want an error that says %s", text, s, err, want)
		}
	}
	for _, text := range []string{"put:..*", "put:a/.*", "put:a/*", "put:*", "put:a:b",
		"put:" + strings.Repeat("a", 256) + "*", "put, consume:a"} {
		if _, err := ParseScope(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	kept := Scope{}
	if err := kept.UnmarshalText([]byte("put:a/b/c")); err != nil || kept.Check() != nil {
		t.Errorf("what an earlier version kept is refused: %v", err)
	}
}

// TestRootFile: a file lists the root tokens, and a file with any mistake gives none.
func TestRootFile(t *testing.T) {
	_, first, hash := New()
	_, second, other := New()
	name := filepath.Join(t.TempDir(), "root-tokens")
	if err := os.WriteFile(name, []byte("# ours\n"+FormatRoot(first, hash)+"\n"+FormatRoot(second, other)),
		0o600); err != nil {
		t.Fatal(err)
	}
	all, err := ReadRootFile(name)
	if err != nil || len(all) != 2 || all[0].ID != first || all[1].Hash != other || !all[0].Scopes.AllowCluster(Admin) ||
		all[0].Check() != nil {
		t.Errorf("%+v, %v", all, err)
	}
	for _, text := range []string{"", "#\n", first, first + " x", "x " + string(hash), first + " " + string(hash) + " y",
		strings.Repeat(FormatRoot(first, hash), rootMax+1)} {
		if all, err := readRoots(strings.NewReader(text)); err == nil {
			t.Errorf("%.80q is read as %v", text, all)
		}
	}
}

// TestMask: of tokens in a text only the ids are left, also of what was copied badly; words that
// begin alike stay.
func TestMask(t *testing.T) {
	text, id, _ := New()
	for given, want := range map[string]string{
		text: "belfry_" + id + "_***", `{"id":"` + text + `","about":"` + text + `x"}`: `{"id":"belfry_` + id +
			`_***","about":"belfry_` + id + `_***"}`,
		text[:len(text)-3] + ".": "belfry_" + id + "_***.", "": "", "belfry_": "belfry_",
		"belfry_jobs_due of " + id: "belfry_jobs_due of " + id,
	} {
		if got := Mask(given); got != want {
			t.Errorf("%q is masked as %q, want %q", given, got, want)
		}
	}
}

// FuzzRoots: a file is read as root tokens that are in order, or not at all.
func FuzzRoots(f *testing.F) {
	_, id, hash := New()
	f.Add(FormatRoot(id, hash))
	f.Add("# none\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readRoots(strings.NewReader(text))
		if (err == nil) == (len(all) == 0) {
			t.Errorf("%q: %v, %v", text, all, err)
		}
		for i := range all {
			if err := all[i].Check(); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzScope: a scope that is read is written as it is read again.
func FuzzScope(f *testing.F) {
	for _, seed := range []string{"put:a", "put,consume:a*", "admin:*", "view:a/b*", "put::", "a:b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScope(text)
		if err != nil {
			return
		}
		again, err := ParseScope(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is read as %v, and that as %v: %v", text, s, again, err)
		}
	})
}
