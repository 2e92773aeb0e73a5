package browsertest

import (
	"strings"
	"testing"
)

// phone is the width of a phone in pixels.
const phone = 360

// testPhone: every page can be read on a phone. One page with hostile texts stands for all of them.
func testPhone(t *testing.T, b *tab) {
	b.size(phone)
	seen := map[string]int{}
	for _, s := range b.site.screens() {
		if strings.HasPrefix(s.name, "job \"") && !strings.Contains(s.name, "longlong") {
			continue
		}
		b.visit(s.path)
		for what, script := range map[string]string{"a label breaks inside a word": brokenWords} {
			got := ask[finds](b, script)
			seen[what] += got.Looked
			if len(got.Found) > 0 {
				t.Errorf("%s: %s at %d places, such as %s", s.name, what, len(got.Found), cut(got.Found[0]))
			}
		}
		b.cleanScreen(s.name, s)
	}
	for what, count := range seen {
		if count == 0 {
			t.Errorf("no page has anything to look at for %q", what)
		}
	}
}

// finds says how many places a script looked at, and where it found something wrong.
type finds struct {
	Looked int
	Found  []string
}

// brokenWords finds labels of ours with a word on two lines.
const brokenWords = `(() => {
	const found = [], range = document.createRange();
	const labels = document.querySelectorAll('table.plain th:not(.free), thead th, dt, label, button, h2, legend, nav a');
	for (const label of labels) {
		const texts = document.createTreeWalker(label, NodeFilter.SHOW_TEXT);
		for (let text = texts.nextNode(); text; text = texts.nextNode()) {
			for (const word of text.data.matchAll(/[^\s\/-]+/g)) {
				range.setStart(text, word.index);
				range.setEnd(text, word.index + word[0].length);
				if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) found.push(label.outerHTML);
			}
		}
	}
	return {looked: labels.length, found};
})()`
