package browsertest

import (
	"strings"
	"testing"
)

// testLabels: whatever the width of a page, the label of an input is beside it, or just above it.
func testLabels(t *testing.T, b *tab) {
	looked := 0
	for _, s := range b.site.screens() {
		if strings.HasPrefix(s.name, "job \"") {
			continue
		}
		b.visit(s.path)
		for _, width := range append(widths(), 600, 700, 1024) {
			b.size(width)
			got := ask[finds](b, lonelyLabels)
			looked += got.Looked
			for _, label := range got.Found {
				t.Errorf("%s, %d px: the label %q is apart from its input", s.name, width, label)
			}
		}
		b.cleanScreen(s.name, s)
	}
	if looked == 0 {
		t.Error("no page has a label")
	}
}

// lonelyLabels finds labels that are neither on the line of their input nor just above it.
const lonelyLabels = `(() => {
	const all = [...document.querySelectorAll('main label[for]')];
	return {looked: all.length, found: all.filter((label) => {
		const {left, top, bottom} = label.getBoundingClientRect(), input = label.control.getBoundingClientRect();
		const beside = input.left > left && input.top < bottom && input.bottom > top;
		const below = Math.abs(input.left - left) < 2 && input.top >= bottom - 2 && input.top < bottom + 10;
		return !beside && !below;
	}).map((label) => label.textContent)};
})()`
