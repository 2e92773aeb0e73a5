package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// A token is belfry_ID_SECRET: an id in lower case, by which it is found and named in logs, and 256
// random bits in base64url, of which only the SHA-256 is kept. A slow hash protects secrets that
// people think up; of this one there is nothing to guess.
const (
	prefix      = "belfry_"
	idBytes     = 10
	secretBytes = 32
	// TextMax is the length of a token, in bytes; whatever is longer is none.
	TextMax = 128
)

// idEncoding writes ids, in upper case.
func idEncoding() *base32.Encoding { return base32.StdEncoding.WithPadding(base32.NoPadding) }

// ErrMalformed is returned for what is no token.
var ErrMalformed = errors.New("it is no token of Belfry, which begins with " + prefix)

// Hash is what is kept of a token's secret, in hexadecimal.
type Hash string

// New makes a token. Its text is shown once; id and hash are kept.
func New() (text, id string, hash Hash) {
	random := make([]byte, idBytes+secretBytes)
	_, _ = rand.Read(random) // never fails
	id = strings.ToLower(idEncoding().EncodeToString(random[:idBytes]))
	secret := base64.RawURLEncoding.EncodeToString(random[idBytes:])
	return prefix + id + "_" + secret, id, hashOf(secret)
}

// Parse takes a token apart. It says nothing about whether there is such a token.
func Parse(text string) (id string, hash Hash, err error) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(text) > TextMax {
		return "", "", ErrMalformed
	}
	id, secret, ok := strings.Cut(rest, "_")
	raw, err := base64.RawURLEncoding.DecodeString(secret)
	if !ok || err != nil || len(raw) != secretBytes || base64.RawURLEncoding.EncodeToString(raw) != secret ||
		!ValidID(id) {
		return "", "", ErrMalformed
	}
	return id, hashOf(secret), nil
}

// secretLeast is from how many letters on what follows an id is taken for a secret that may have
// been copied badly.
const secretLeast = 20

// Mask returns a text without the secrets of the tokens that it holds. Their ids stay.
func Mask(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, prefix)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(prefix)
		word := rest[:len(rest)-len(strings.TrimLeftFunc(rest, isOfToken))]
		if id, secret, ok := strings.Cut(word, "_"); ok && len(secret) >= secretLeast {
			out.WriteString(id + "_***")
		} else {
			out.WriteString(word)
		}
		text = rest[len(word):]
	}
}

// isOfToken reports whether a letter can be in a token.
func isOfToken(r rune) bool {
	return r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// ValidID reports whether a text can be the id of a token.
func ValidID(id string) bool {
	raw, err := idEncoding().DecodeString(strings.ToUpper(id))
	return err == nil && len(raw) == idBytes && id == strings.ToLower(idEncoding().EncodeToString(raw))
}

// Equal reports whether two hashes are the same, in a time that does not tell where they differ.
func (h Hash) Equal(other Hash) bool {
	return subtle.ConstantTimeCompare([]byte(h), []byte(other)) == 1
}

// Valid reports whether h can be a hash, in lower case.
func (h Hash) Valid() bool {
	raw, err := hex.DecodeString(string(h))
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == string(h)
}

func hashOf(secret string) Hash {
	sum := sha256.Sum256([]byte(secret))
	return Hash(hex.EncodeToString(sum[:]))
}
