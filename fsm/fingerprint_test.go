package fsm

import "testing"

// TestFingerprint: errors of one cause have one fingerprint, and others have another.
func TestFingerprint(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    NoErrorText,
		"timeout after 30 s":                  "timeout after # s",
		"order 4711 of 2026-11-29 is unknown": "order # of # is unknown",
		"order_4711: no such row":             "#: no such row",
		"user 123e4567-e89b-12d3-a456-426614174000 is gone": "user # is gone",
		"commit deadbeef1234 failed":                        "commit # failed",
		"dial tcp 10.0.0.1:7400: refused":                   "dial tcp #.#.#.#:#: refused",
		"no mailbox of user15":                              "no mailbox of #",
		"sha1 and http2 are words":                          "sha1 and http2 are words",
		"smtp: 550 mailbox of ann@b3.example":               "smtp: 550 mailbox of ann@#.example",
		"451 4.7.1 try again in 300 s":                      "451 #.#.# try again in # s",
		"unexpected status code=503 for order 404":          "unexpected status code=503 for order #",
		"HTTP (502)": "HTTP (502)", "HTTP 999": "HTTP #", "status 5003": "status #", "code -12": "code #",
		"123 items failed": "# items failed", "404: no such page": "404: no such page",
		"Größe 12 überschritten": "Größe # überschritten",
	} {
		if got := Fingerprint(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
