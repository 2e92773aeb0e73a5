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
		for what, script := range map[string]string{
			"a label breaks inside a word": brokenWords, "a row has no name once its table is scrolled": scrolledRows,
			"nothing shows that a table is wider than the page": edges, "the head is not compact": head,
		} {
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

// edges finds tables that are wider than the page without a shade at their side.
const edges = `(() => {
	const wide = [...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth);
	const shaded = (e) => {
		const style = getComputedStyle(e), moves = style.backgroundAttachment.split(', ');
		return style.backgroundImage.split('linear-gradient').length === 3 && moves[0] === 'local' && moves[1] === 'scroll';
	};
	return {looked: wide.length, found: wide.filter((e) => !shaded(e)).map((e) => e.outerHTML)};
})()`

// scrolledRows scrolls tables to their end, and finds rows whose name is then hidden, takes more than
// half of the width, lets shine through what is behind it, or has no line at its side; and tables
// that no key can scroll.
const scrolledRows = `(() => {
	const found = [];
	let looked = 0;
	for (const wide of document.querySelectorAll('.wide')) {
		if (wide.tabIndex !== 0) found.push(wide.outerHTML);
		wide.scrollLeft = wide.scrollWidth;
		if (wide.scrollLeft === 0) continue;
		const edge = wide.getBoundingClientRect().left;
		for (const row of wide.querySelectorAll('tbody tr')) {
			const name = row.querySelector('th') || row.cells[0], box = name.getBoundingClientRect();
			const {backgroundColor, backgroundImage} = getComputedStyle(name);
			const opaque = backgroundColor.startsWith('rgb(') && backgroundImage !== 'none';
			const kept = Math.abs(box.left - edge) <= 1 && box.width <= wide.clientWidth / 2;
			if (!kept || !opaque) found.push(name.outerHTML);
			looked++;
		}
		wide.scrollLeft = 0;
	}
	return {looked, found};
})()`

// head finds a head of the page that takes much of it, does not show where one is, or cuts the hint in
// an input; and a list of warnings with bullets.
const head = `(() => {
	const found = [], header = document.querySelector('header');
	if (header.offsetHeight > 100) found.push('it has ' + header.offsetHeight + ' px');
	const entry = document.querySelector('nav a[aria-current]'), list = document.querySelector('nav ul');
	if (entry) {
		const {left, right} = entry.getBoundingClientRect(), row = list.getBoundingClientRect();
		if (left < row.left || right > row.right) found.push(entry.textContent + ' is out of sight');
	}
	for (const input of header.querySelectorAll('input[placeholder]')) {
		const {value} = input;
		input.value = input.placeholder;
		if (input.scrollWidth > input.clientWidth) found.push(input.placeholder + ' is cut');
		input.value = value;
	}
	const warnings = document.createElement('ul');
	warnings.className = 'warning';
	document.body.append(warnings);
	if (getComputedStyle(warnings).listStyleType !== 'none') found.push('a warning has a bullet');
	warnings.remove();
	return {looked: 1, found};
})()`
