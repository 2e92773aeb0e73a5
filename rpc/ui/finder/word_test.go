package finder

import "testing"

// TestWord: a number is looked for rather than a word, and nothing that is the text itself or that nearly
// every job has.
func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"order 4711": "4711", "order-4711": "4711", "Order #4711 of Ann": "4711", "unpaid order": "unpaid", "4711": "",
		"order": "", "a b c": "", "": "", "?!": "", "id 12 of März 2026": "2026", "\"4711\"": "4711",
		"große Bestellung": "Bestellung",
	} {
		if got := Word(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
