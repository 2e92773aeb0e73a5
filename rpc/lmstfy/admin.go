package lmstfy

import (
	"net/http"
	"strings"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// adminIndent is the indentation of answers to administrators.
const adminIndent = "    "

// mountAdministration routes the paths that lmstfy has on its port for administrators.
func (h *Handler) mountAdministration() {
	for route, action := range map[string]func(*call) answer{
		"GET /version":                     h.version,
		"GET /pools":                       pools,
		"GET /info":                        h.info,
		"GET /limits":                      limits,
		"GET /token/{namespace}":           h.listTokens,
		"POST /token/{namespace}":          h.newToken,
		"DELETE /token/{namespace}/{id}":   h.deleteToken,
		"/token/{namespace}/{token}/limit": tokenLimit,
	} {
		h.mux.Handle(route, h.administration(action))
	}
}

// administration returns the handler of a route for administrators.
func (h *Handler) administration(action func(*call) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, parameters: r.URL.Query(), namespace: r.PathValue("namespace")}
		token := adminToken(r)
		authenticated, f := h.authenticate(r, token)
		if f != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="belfry"`)
			refusal(f, token).send(w)
			return
		}
		c.Request = authenticated
		action(c).send(w)
	})
}

// adminToken returns the token of a request of an administrator: in X-Token, or as the password of
// the accounts that lmstfy has. The parameter token is another one.
func adminToken(r *http.Request) string {
	if token := r.Header.Get("X-Token"); token != "" {
		return token
	}
	_, password, _ := r.BasicAuth()
	return password
}

// refused returns the answer to a call that a service did not carry out. Administrators get the
// reason of a refusal.
func refused(err error) answer {
	a := failed(err)
	if f := faultOf(err); f.Reason == belfryv1.Reason_REASON_FORBIDDEN {
		a.status, a.body = http.StatusForbidden, problem{Error: f.Message}
	}
	return a
}

// version serves GET /version.
func (h *Handler) version(*call) answer {
	return answer{status: http.StatusOK, indent: adminIndent, body: struct {
		Commit  string `json:"build_commit"`
		Date    string `json:"build_date"`
		Version string `json:"version"`
	}{Version: h.cfg.Version}}
}

// pools serves GET /pools.
func pools(*call) answer {
	return answer{status: http.StatusOK, indent: adminIndent, body: []string{defaultPool}}
}

// limits serves GET /limits. Belfry has none per token.
func limits(*call) answer { return answer{status: http.StatusOK, body: struct{}{}} }

// tokenLimit serves the limits of tokens, which Belfry does not have.
func tokenLimit(c *call) answer {
	if c.Method == http.MethodGet {
		return answer{status: http.StatusNotFound, body: struct{}{}}
	}
	return failure(http.StatusNotImplemented,
		"a token has no limits of its own here: set the rate of its queues or the quota of its namespace")
}

const (
	// pageSize is the size of the pages in which queues and tokens are read, and pagesMax how many of
	// them an answer has at most.
	pageSize, pagesMax = 1000, 100
)

// info serves GET /info: the queues by namespace.
func (h *Handler) info(c *call) answer {
	all := map[string][]string{}
	for page, pages := "", 0; pages < pagesMax; pages++ {
		res, err := h.cfg.Administration.ListQueues(c.Context(),
			&belfryv1.ListQueuesRequest{PageSize: pageSize, PageToken: page})
		if err != nil {
			return refused(err)
		}
		for _, q := range res.GetQueues() {
			if namespace, queue, ok := strings.Cut(q.GetName(), "/"); ok && nameFlaw(namespace, queue) == "" {
				all[namespace] = append(all[namespace], queue)
			}
		}
		if page = res.GetNextPageToken(); page == "" {
			break
		}
	}
	return answer{status: http.StatusOK, indent: adminIndent, body: all}
}

// scopesOf returns the scopes of the tokens of a namespace: in lmstfy, a token may do everything
// there.
func scopesOf(namespace string) []string {
	return []string{string(tokens.Admin) + ":" + namespace + "/" + tokens.All}
}

// newToken serves POST /token/{namespace}: a Belfry token for the queues of the namespace.
func (h *Handler) newToken(c *call) answer {
	if err := c.ParseForm(); err != nil {
		return failure(http.StatusBadRequest, "invalid description")
	}
	about, chosen, pool := c.Form.Get("description"), c.Form.Get("token"), c.parameters.Get("pool")
	switch {
	case about == "":
		return failure(http.StatusBadRequest, "invalid description")
	case chosen != "":
		return failure(http.StatusBadRequest,
			"Belfry makes the token, and keeps only a hash of it: call this without the parameter token")
	case len(c.namespace) > nameMax:
		return failure(http.StatusBadRequest, "the namespace name was too long")
	case !isName(c.namespace):
		return failure(http.StatusBadRequest, forbiddenNamespace)
	case pool != "" && pool != defaultPool:
		return noPool()
	}
	res, err := h.cfg.Administration.CreateToken(c.Context(),
		&belfryv1.CreateTokenRequest{Scopes: scopesOf(c.namespace), About: strings.ToValidUTF8(about, "\ufffd")})
	if err != nil {
		return refused(err)
	}
	return answer{status: http.StatusCreated, indent: adminIndent, body: struct {
		Token string `json:"token"`
	}{res.GetToken()}}
}

func noPool() answer { return failure(http.StatusBadRequest, "the pool was not exists") }

// listTokens serves GET /token/{namespace}: what the tokens of the namespace are about, by their ids.
// The tokens themselves are not kept.
func (h *Handler) listTokens(c *call) answer {
	if pool := c.parameters.Get("pool"); pool != "" && pool != defaultPool {
		return noPool()
	}
	all := map[string]string{}
	err := h.eachToken(c, func(t *belfryv1.Token) { all[t.GetId()] = t.GetAbout() })
	if err != nil {
		return refused(err)
	}
	return answer{status: http.StatusOK, indent: adminIndent, body: struct {
		Tokens map[string]string `json:"tokens"`
	}{all}}
}

// eachToken calls visit with the tokens whose scopes are all in the namespace.
func (h *Handler) eachToken(c *call, visit func(*belfryv1.Token)) error {
	for page, pages := "", 0; pages < pagesMax; pages++ {
		res, err := h.cfg.Administration.ListTokens(c.Context(),
			&belfryv1.ListTokensRequest{PageSize: pageSize, PageToken: page})
		if err != nil {
			return err
		}
		for _, t := range res.GetTokens() {
			if isWithin(t, c.namespace) {
				visit(t)
			}
		}
		if page = res.GetNextPageToken(); page == "" {
			break
		}
	}
	return nil
}

// isWithin reports whether a token is for queues of one namespace only.
func isWithin(t *belfryv1.Token, namespace string) bool {
	for _, text := range t.GetScopes() {
		scope, err := tokens.ParseScope(text)
		if err != nil || !strings.HasPrefix(scope.Queues, namespace+"/") {
			return false
		}
	}
	return len(t.GetScopes()) > 0
}

// deleteToken serves DELETE /token/{namespace}/{token}, of a token or of its id. A token of another
// namespace stays, and the answer is the same, as in lmstfy.
func (h *Handler) deleteToken(c *call) answer {
	pool, id := splitToken(c.PathValue("id"))
	if pool != defaultPool {
		return noPool()
	}
	if parsed, _, err := tokens.Parse(id); err == nil {
		id = parsed
	}
	found := false
	if err := h.eachToken(c, func(t *belfryv1.Token) { found = found || t.GetId() == id }); err != nil {
		return refused(err)
	}
	if !found {
		return done()
	}
	if _, err := h.cfg.Administration.DeleteToken(c.Context(), &belfryv1.DeleteTokenRequest{Id: id}); err != nil {
		return refused(err)
	}
	return done()
}
