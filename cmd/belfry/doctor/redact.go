package doctor

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// hidden stands where something was taken out.
const hidden = "***"

// A rule is a form of what must not leave the machine, and what stands for it.
type rule struct {
	form *regexp.Regexp
	by   string
}

// secrets are the rules. What they look for is looked for in everything, although none of it is
// asked for.
type secrets []rule

func newSecrets() secrets {
	return secrets{
		// a key
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), hidden},
		{regexp.MustCompile(`\bbelfry_[A-Za-z0-9]+_[A-Za-z0-9_-]+`), hidden},              // an access token
		{regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]+`), "$1 " + hidden}, // what a header brings
		// 16 or 32 bytes in base64, as keys of gossip are
		{regexp.MustCompile(`[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{42,43}={1,2}`), hidden},
		{regexp.MustCompile(`://[^/\s"'?#]*@`), "://" + hidden + "@"}, // users and passwords in URLs
	}
}

// redact returns text without what looks like a token, a key or a password.
func (s secrets) redact(text string) string {
	for _, r := range s {
		text = r.form.ReplaceAllString(text, r.by)
	}
	return text
}

// metrics redacts the labels of metrics, not their names, and hashes the names of queues and
// namespaces.
func (s secrets) metrics(text string, names Names) string {
	label := regexp.MustCompile(`\b(queue|namespace)="((?:[^"\\]|\\.)*)"`)
	var out strings.Builder
	for line := range strings.Lines(text) {
		name := strings.IndexAny(line, "{ ")
		if strings.HasPrefix(line, "#") || name < 0 { // a metric's help, which has nothing of a user's
			out.WriteString(line)
			continue
		}
		labels := label.ReplaceAllStringFunc(line[name:], func(found string) string {
			parts := label.FindStringSubmatch(found)
			return parts[1] + `="` + names.Of(parts[2]) + `"`
		})
		out.WriteString(line[:name] + s.redact(labels))
	}
	return out.String()
}

// Names stands for names of queues in a bundle. The zero value leaves them as they are.
type Names struct{ key []byte }

// Hashed returns names that are the same for one queue throughout a bundle. They reveal nothing
// without the key, which is dropped.
func Hashed() Names {
	n := Names{key: make([]byte, 32)}
	_, _ = rand.Read(n.key) // never fails
	return n
}

// Of returns what stands for a name. A namespace and what is in it are hashed apart.
func (n Names) Of(name string) string {
	if n.key == nil || name == "" {
		return name
	}
	space, rest, found := strings.Cut(name, "/")
	if found {
		return n.Of(space) + "/" + n.Of(rest)
	}
	sum := hmac.New(sha256.New, n.key)
	sum.Write([]byte(name))
	return "q" + hex.EncodeToString(sum.Sum(nil)[:6])
}
