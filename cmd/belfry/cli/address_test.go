package cli

import "testing"

// TestDirectAddress: what is behind TLS or a proxy is not looked at.
func TestDirectAddress(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:7400": "127.0.0.1:7400", "http://127.0.0.1": "127.0.0.1:80", "http://[::1]:7400/": "[::1]:7400",
		"https://127.0.0.1:7400": "", "ftp://x": "", "127.0.0.1": "127.0.0.1:7400", "a:1,b:2": "a:1",
	} {
		if got, ok := (&App{Server: text}).directAddress(); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", text, got, ok, want)
		}
	}
}
