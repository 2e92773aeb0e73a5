package browsertest

import (
	"strings"
	"testing"
)

// testContrast: in both themes what can be typed into, chosen from or pressed has a border that is
// seen, as WCAG 1.4.11 wants, and its text and hint can be read, as WCAG 1.4.3 wants. axe-core looks
// neither at borders nor at hints. One page with hostile texts stands for all of them.
func testContrast(t *testing.T, b *tab) {
	looked := 0
	for _, s := range b.site.screens() {
		if strings.HasPrefix(s.name, "job \"") {
			continue
		}
		b.visit(s.path)
		for _, theme := range []string{"light", "dark"} {
			b.prefer(theme)
			got := ask[finds](b, faintControls)
			looked += got.Looked
			for _, faint := range got.Found {
				t.Errorf("%s, %s: %s", s.name, theme, faint)
			}
		}
		b.cleanScreen(s.name, s)
	}
	if looked == 0 {
		t.Error("no page has anything to look at")
	}
}

// faintControls finds inputs, lists and buttons whose border differs by less than 3:1 from what is
// inside or outside of it, or whose text or hint does by less than 4.5:1 from its background. Boxes
// that are ticked are drawn by the browser.
const faintControls = `(() => {
	const colorOf = (text) => {
		const parts = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)$/.exec(text);
		if (!parts) throw new Error('the color ' + text + ' has another form');
		return {rgb: parts.slice(1, 4).map(Number), alpha: parts[4] === undefined ? 1 : Number(parts[4])};
	};
	const over = ({rgb, alpha}, under) => rgb.map((part, i) => part * alpha + under[i] * (1 - alpha));
	const behind = (element) => element ?
		over(colorOf(getComputedStyle(element).backgroundColor), behind(element.parentElement)) : [255, 255, 255];
	const light = (rgb) => {
		const [r, g, b] = rgb.map((part) => part / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ratio = (a, b) => {
		const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
		return (high + 0.05) / (low + 0.05);
	};
	const found = [];
	const all = [...document.querySelectorAll('input, select, textarea, button, a.button')].filter((e) =>
		!['hidden', 'checkbox', 'radio'].includes(e.type) && e.checkVisibility());
	for (const control of all) {
		const style = getComputedStyle(control), inside = behind(control), outside = behind(control.parentElement);
		const want = (what, got, least) => {
			if (got < least) found.push(what + ' has ' + got.toFixed(2) + ':1, want ' + least + ':1: ' +
				control.outerHTML.slice(0, 120));
		};
		for (const side of ['Top', 'Right', 'Bottom', 'Left']) {
			const drawn = style['border' + side + 'Style'] === 'solid' && parseFloat(style['border' + side + 'Width']) >= 1;
			const color = colorOf(style['border' + side + 'Color']);
			want('the border, inside,', drawn ? ratio(over(color, inside), inside) : 1, 3);
			want('the border, outside,', drawn ? ratio(over(color, outside), outside) : 1, 3);
		}
		want('the text', ratio(over(colorOf(style.color), inside), inside), 4.5);
		if (control.placeholder) {
			const hint = getComputedStyle(control, '::placeholder'), color = colorOf(hint.color);
			color.alpha *= Number(hint.opacity);
			want('the hint', ratio(over(color, inside), inside), 4.5);
		}
	}
	return {looked: all.length, found};
})()`
