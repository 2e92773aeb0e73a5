package rpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTokenRequests: what a token cannot be is refused by the name of its field.
func TestTokenRequests(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	root, _ := tokenStore.make(t, "admin:*")
	for body, field := range map[string]string{
		`{}`: "scopes", `{"scopes":["put"]}`: "scopes[0]", `{"scopes":["put:a","x:y"]}`: "scopes[1]",
		`{"scopes":["put:a"],"ttl":"0.5s"}`:                               "ttl",
		`{"scopes":["put:a"],"ttl":"400000000s"}`:                         "ttl",
		`{"scopes":["put:a"],"about":"` + strings.Repeat("x", 257) + `"}`: "about",
		`{"scopes":[` + strings.Repeat(`"put:a",`, 32) + `"put:a"]}`:      "scopes",
	} {
		if got := s.with(root, http.MethodPost, "/v1/create-token", body); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, field+": ") {
			t.Errorf("%.60s: %d %s", body, got.status, got.body)
		}
	}
	if got := s.with(root, http.MethodPost, "/v1/delete-token", `{"id":"x"}`); got.status != http.StatusBadRequest ||
		!strings.Contains(got.body, "id: ") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestTokensAreMadeAsAsked: with an end, by whom, and listed page by page.
func TestTokensAreMadeAsAsked(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	root, rootID := tokenStore.make(t, "admin:*")
	for range 4 {
		if got := s.with(root, http.MethodPost, "/v1/create-token",
			`{"scopes":["put:a"],"ttl":"3600s"}`); got.status != http.StatusOK {
			t.Fatal(got.body)
		}
	}
	var ids []string
	for page := ""; ; {
		got := s.with(root, http.MethodPost, "/v1/list-tokens", fmt.Sprintf(`{"pageSize":2,"pageToken":%q}`, page))
		var answer struct {
			Tokens []struct {
				ID                             string
				CreatedBy, CreatedAt, NotAfter string
			}
			NextPageToken string
		}
		if err := json.Unmarshal([]byte(got.body), &answer); err != nil || len(answer.Tokens) > 2 {
			t.Fatal(got.body, err)
		}
		for _, token := range answer.Tokens {
			ids = append(ids, token.ID)
			made, _ := time.Parse(time.RFC3339, token.CreatedAt)
			if end, _ := time.Parse(time.RFC3339, token.NotAfter); token.ID != rootID &&
				(token.CreatedBy != rootID || end.Sub(made) != time.Hour) {
				t.Errorf("%+v", token)
			}
		}
		if page = answer.NextPageToken; page == "" {
			break
		}
	}
	if len(ids) != 5 || !slices.IsSorted(ids) {
		t.Errorf("listed: %v", ids)
	}
	id := ids[0]
	if id == rootID {
		id = ids[1]
	}
	if got := s.with(root, http.MethodPost, "/v1/delete-token",
		fmt.Sprintf(`{"id":%q,"after":"60s"}`, id)); got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	if r, _ := tokenStore.Token(id); r == nil || time.Until(time.Unix(0, r.NotAfter)) > time.Minute {
		t.Errorf("a token that ends in a minute: %+v", r)
	}
	wide := strings.Repeat("x", 250)
	body := `{"scopes":["put:` + wide + `","put:a` + wide[1:] + `","put:b` + wide[1:] + `","put:c` +
		wide[1:] + `","put:d` + wide[1:] + `"]}`
	if got := s.with(root, http.MethodPost, "/v1/create-token", body); got.status != http.StatusBadRequest ||
		!strings.Contains(got.body, "1024") {
		t.Errorf("scopes beyond their bytes: %d %s", got.status, got.body)
	}
	if log := s.log.String(); strings.Count(log, " made=") != 4 {
		t.Errorf("the audit does not say which tokens were made:\n%s", log)
	}
}

// TestEndOfATokenMayBeRepeated: a caller that asks again, because the first answer was lost, is
// told that the token is gone.
func TestEndOfATokenMayBeRepeated(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	root, _ := tokenStore.make(t, "admin:*")
	for after, want := range map[string][]bool{"0s": {true, false, false}, "60s": {true, true}} {
		_, id := tokenStore.make(t, "put:a")
		for i, found := range want {
			got := s.with(root, http.MethodPost, "/v1/delete-token", fmt.Sprintf(`{"id":%q,"after":%q}`, id, after))
			if got.status != http.StatusOK || strings.TrimSpace(got.body) != fmt.Sprintf(`{"found":%v}`, found) {
				t.Errorf("ending a token after %s for time %d: %d %s", after, i+1, got.status, got.body)
			}
		}
	}
}
