package doctor

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	begin := "-----BEGIN "
	b64 := "cGxhbnRlZDogdGhpcnR5LXR3byBieXRlcyBvZiBrZXk="
	for text, want := range map[string]string{
		"a token belfry_k3_Q2xvc2Ugb3JkZXI-_x, and on": "a token ***, and on",
		"belfry_xxx_yyy":                          "***",
		"Authorization: Bearer abc.def-_~+/=":     "Authorization: Bearer ***",
		"key " + b64 + "\n":                       "key ***\n",
		"key " + b64[:22] + "== x":                "key *** x",
		"redis://u:p@h:1/0 and https://token@h/x": "redis://***@h:1/0 and https://***@h/x",
		"http://h:1/path?mail=a@b":                "http://h:1/path?mail=a@b",
		begin + "EC PRIVATE KEY-----\nMHc\nx\n":   "***",
		"digest 1234567890abcdef, github.com/belfrydb/belfry": "digest 1234567890abcdef, " +
			"github.com/belfrydb/belfry",
		"x\n" + begin + "PRIVATE KEY-----\nMHc\n-----END PRIVATE KEY-----\ny": "x\n***\ny",
	} {
		if got := newSecrets().redact(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestMetricsAreRedacted(t *testing.T) {
	names := Hashed()
	text := "# HELP belfry_jobs Jobs by state.\n" +
		`belfry_queue_oldest_ready_timestamp_seconds{queue="shop/or\"ders",shard="2"} 1.5` + "\n" +
		`belfry_jobs{namespace="shop",node="belfry_xxx_yyy"} 3` + "\nprocess_open_fds 12\n"
	want := "# HELP belfry_jobs Jobs by state.\n" + `belfry_queue_oldest_ready_timestamp_seconds{queue="` +
		names.Of(`shop/or\"ders`) + `",shard="2"} 1.5` + "\n" +
		`belfry_jobs{namespace="` + names.Of("shop") + `",node="***"} 3` + "\nprocess_open_fds 12\n"
	if got := newSecrets().metrics(text, names); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := newSecrets().metrics(text, Names{}); !strings.Contains(got, `queue="shop/or\"ders"`) {
		t.Errorf("with names: %s", got)
	}
}

// A name has one hash in a bundle, and another in the next.
func TestNames(t *testing.T) {
	a, b := Hashed(), Hashed()
	space, _, _ := strings.Cut(a.Of("shop/orders"), "/")
	once, again := a.Of("orders"), a.Of("orders")
	if once != again || a.Of("orders") == b.Of("orders") || a.Of("orders") == a.Of("order") || space != a.Of("shop") ||
		a.Of("") != "" {
		t.Errorf("%s %s %s %s", a.Of("orders"), b.Of("orders"), a.Of("order"), a.Of("shop/orders"))
	}
}
