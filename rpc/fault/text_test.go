package fault

import "testing"

func TestCutKeepsCharactersWhole(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aäb", 2, "a"}, {"aäb", 3, "aä"}, {"日本", 4, "日"}, {"日", 2, ""}} {
		if got := Cut(c.text, c.most); got != c.want {
			t.Errorf("cut(%q, %d) = %q; want %q", c.text, c.most, got, c.want)
		}
	}
	if got := Clip("abcd", 3); got != "abc…" {
		t.Errorf("clip = %q", got)
	}
}
