package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

const (
	putShop = `{"queue":"shop/orders","text":"the body of a job"}`
	putElse = `{"queue":"bank/orders","text":"the body of a job"}`
	noToken = "401 UNAUTHENTICATED"
	noScope = "403 FORBIDDEN"
)

// calling is an attack of one call.
func calling(name, token, path, body, want string, headers ...string) attack {
	return attack{name, func(s *siege) string {
		return s.ask(s.procs[0], token, http.MethodPost, path, body, headers...)
	}, want}
}

// getting is calling with GET.
func getting(name, token, path, want string, headers ...string) attack {
	return attack{name, func(s *siege) string {
		return s.ask(s.procs[0], token, http.MethodGet, path, "", headers...)
	}, want}
}

// tokenAttacks come without a token that is valid.
func tokenAttacks() []attack {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:admin"))
	all := []attack{
		calling("no token", "", "/v1/put", putShop, noToken),
		calling("an empty token", "Bearer ", "/v1/put", putShop, noToken),
		calling("garbage for a token", "Bearer let me in", "/v1/put", putShop, noToken),
		calling("a token of 32 KiB", "Bearer belfry_"+strings.Repeat("a", 32<<10), "/v1/put", putShop, noToken),
		calling("user and password", basic, "/v1/put", putShop, noToken),
		calling("a token that has expired", "expired", "/v1/put", putShop, noToken),
		calling("a token that was ended", "ended", "/v1/put", putShop, noToken),
		calling("the root token of another cluster", "foreign", "/v1/put", putShop, noToken),
		calling("two tokens, of which the first is valid", "shop", "/v1/put", putShop, noToken, "Authorization", "Bearer x"),
		calling("a put that says that it is /livez", "", "/v1/put", putShop, noToken, "X-Original-URL", "/livez",
			"X-Rewrite-URL", "/livez", "X-HTTP-Method-Override", "GET"),
		calling("a put that says that it comes from the node itself", "", "/v1/put", putShop, noToken, "X-Forwarded-For",
			"127.0.0.1", "X-Real-IP", "127.0.0.1"),
		getting("metrics without a token", "", "/metrics", noToken),
		calling("gRPC's reflection without a token", "", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "{}",
			noToken),
		calling("a backup without a token", "", "/belfry.v1.AdminService/Backup", "{}", noToken),
		calling("gRPC without a token", "", "/belfry.v1.QueueService/Put", "\x00\x00\x00\x00\x00", "grpc-status 16",
			"Content-Type", "application/grpc-web+proto"),
		getting("a WebSocket without a token", "", "/belfry.v1.session", noToken, "Connection", "Upgrade", "Upgrade",
			"websocket"),
	}
	for name, change := range map[string]func(token string) string{
		"the id of the root token with another secret": func(token string) string {
			return token[:strings.LastIndexByte(token, '_')+1] + strings.Repeat("A", 43)
		},
		"half of the root token":        func(token string) string { return token[:len(token)-8] },
		"the root token, and more":      func(token string) string { return token + "AAAA" },
		"the root token in upper case":  strings.ToUpper,
		"the id of the root token only": func(token string) string { return token[:strings.LastIndexByte(token, '_')] },
	} {
		all = append(all, attack{name, func(s *siege) string {
			return s.ask(s.procs[0], "Bearer "+change(s.tokens["root"]), http.MethodPost, "/v1/put", putShop)
		}, noToken})
	}
	for _, place := range []string{"token", "access_token", "authorization"} {
		all = append(all, attack{"the root token in the query, as " + place, func(s *siege) string {
			return s.ask(s.procs[0], "", http.MethodPost, "/v1/put?"+place+"="+s.tokens["root"], putShop)
		}, noToken})
	}
	return append(all, attack{"the root token in a cookie", func(s *siege) string {
		return s.ask(s.procs[0], "", http.MethodPost, "/v1/put", putShop, "Cookie", "Authorization="+s.tokens["root"])
	}, noToken})
}

// scopeAttacks come with a token that allows something else.
func scopeAttacks() []attack {
	all := []attack{
		calling("a put with a token to consume", "consume", "/v1/put", putShop, noScope),
		calling("a put into another queue", "put", "/v1/put", putElse, noScope),
		calling("a put into another queue in a batch", "put", "/v1/put-batch", `{"jobs":[`+putElse+`]}`, "FORBIDDEN"),
		calling("a put into a queue whose name begins likewise", "put", "/v1/put",
			strings.Replace(putShop, "shop/", "shop-", 1), noScope),
		calling("a put that climbs out of its queues", "put", "/v1/put",
			strings.Replace(putShop, "shop/", "shop/../bank/", 1), "400 INVALID"),
		calling("a cancel with a token to consume", "consume", "/v1/cancel", `{"queue":"shop/orders","id":"a"}`, noScope),
		calling("a reschedule with a token to consume", "consume", "/v1/reschedule",
			`{"queue":"shop/orders","id":"a","delay":"1s"}`, noScope),
		calling("a reserve with a token to put", "put", "/v1/reserve", `{"queues":["shop/orders"]}`, noScope),
		calling("a reserve from a queue of one's own and another", "consume", "/v1/reserve",
			`{"queues":["shop/orders","bank/orders"]}`, noScope),
		calling("a look at a job with a token to put", "put", "/v1/get", `{"queue":"shop/orders","id":"a"}`, noScope),
		calling("a list of jobs with a token to view", "view", "/v1/list", `{"queue":"shop/orders"}`, noScope),
		calling("a redrive with a token to put", "put", "/v1/redrive", `{"queue":"shop/orders","max":1}`, noScope),
		calling("the pause of a queue with a token to consume", "consume", "/v1/update-queue",
			`{"queue":"shop/orders","settings":{"paused":true}}`, noScope),
		calling("the purge of a queue with a token to put", "put", "/v1/purge-queue", `{"queue":"shop/orders"}`, noScope),
		calling("the end of a queue with a token to view", "view", "/v1/delete-queue", `{"queue":"shop/orders"}`, noScope),
		calling("a queue of others looked at by its admin's neighbour", "admin", "/v1/get-queue", `{"queue":"bank/orders"}`,
			noScope),
		calling("a new token by the admin of a queue", "admin", "/v1/create-token", `{"scopes":["admin:*"]}`, noScope),
		calling("the list of tokens by the admin of a queue", "admin", "/v1/list-tokens", `{}`, noScope),
		calling("the end of a node by the admin of a queue", "admin", "/v1/remove-node", `{"name":"n3"}`, noScope),
		calling("the cluster's state by the admin of a queue", "admin", "/v1/get-cluster", `{}`, noScope),
		getting("metrics by the admin of a queue", "admin", "/metrics", noScope),
		getting("a raw reserve from another queue", "shop", "/q/bank/orders", noScope),
		calling("a raw put into another queue", "shop", "/q/bank/orders", "the body of a job", noScope),
	}
	return append(all, attack{"an ack of somebody else's lease", func(s *siege) string {
		root := s.procs[0]
		if got := root.run(launcher, "put", "bank/leased", "x"); got.Code != 0 {
			return got.Err
		}
		lease := reserveOne(s.t, root, launcher, "bank/leased").Lease
		return s.ask(root, "consume", http.MethodPost, "/v1/ack", fmt.Sprintf(`{"lease":%q}`, lease))
	}, noScope})
}

// browserAttacks are what a browser sends on behalf of a page from elsewhere.
func browserAttacks() []attack {
	all := []attack{
		calling("a form of another site", "shop", "/v1/put", putShop, noScope, "Sec-Fetch-Site", "cross-site", "Content-Type",
			"text/plain"),
		calling("a script of a sister site", "shop", "/v1/put", putShop, noScope, "Sec-Fetch-Site", "same-site"),
		calling("an old browser's form of another site", "shop", "/v1/put", putShop, noScope, "Origin",
			"https://evil.example"),
		calling("a page without an origin", "shop", "/v1/put", putShop, noScope, "Origin", "null"),
		getting("an image of another site that takes a job", "shop", "/q/shop/orders", noScope, "Sec-Fetch-Site",
			"cross-site"),
		getting("metrics in a frame of another site", "root", "/metrics", noScope, "Sec-Fetch-Site", "cross-site"),
		calling("a session of another site", "shop", "/belfry.v1/session", "", noScope, "Origin", "https://evil.example"),
	}
	return append(all, attack{"a preflight of another site", func(s *siege) string {
		return s.ask(s.procs[0], "shop", http.MethodOptions, "/v1/put", "", "Origin", "https://evil.example",
			"Access-Control-Request-Method", "POST")
	}, "405 UNIMPLEMENTED"})
}

// pathAttacks look for a way around what asks for tokens.
func pathAttacks() []attack {
	var all []attack
	for _, path := range []string{
		"/v1/../metrics", "//metrics", "/METRICS", "/metrics/", "/livez/../metrics", "/livez/..;/metrics",
		"/livez%2f..%2fmetrics", "/metrics%00", "/./v1/put", "/v1//put", "/v1/put/",
		"/debug/pprof/", "/.git/config", "/q/../metrics", "/readyz/../v1/list-tokens", "*",
	} {
		all = append(all, getting("the path "+path, "", path, noToken))
	}
	return append(all,
		getting("a path beside gRPC's health", "", "/grpc.health.v1.Health/../../metrics", "501 UNIMPLEMENTED"),
		getting("a path of nothing with a token", "shop", "/admin", "501 UNIMPLEMENTED"),
		attack{"an address of another host", func(s *siege) string {
			return s.ask(s.procs[0], "", http.MethodGet, "//evil.example/metrics", "")
		}, noToken},
	)
}

// gzipped returns so many times 16 MiB of zeros, compressed: gzip takes what stands behind each
// other for one.
func gzipped(times int) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 16<<20)) // a buffer takes all
	_ = w.Close()
	return strings.Repeat(b.String(), times)
}

// shapeAttacks are requests with a valid token that are too large, too deep, or no requests.
func shapeAttacks() []attack {
	deep := `{"headers":` + strings.Repeat("[", 1_000_000)
	all := []attack{
		calling("a body of 9 MiB", "shop", "/v1/put", `{"queue":"shop/orders","text":"`+strings.Repeat("x", 9<<20)+`"}`,
			"400 TOO_LARGE"),
		calling("a job of 2 MiB", "shop", "/v1/put", `{"queue":"shop/orders","text":"`+strings.Repeat("x", 2<<20)+`"}`,
			"400 TOO_LARGE"),
		calling("a raw job of 2 MiB", "shop", "/q/shop/orders", strings.Repeat("x", 2<<20), "400 TOO_LARGE"),
		calling("a bomb of 1 GiB", "shop", "/v1/put", gzipped(64), "400 TOO_LARGE", "Content-Encoding", "gzip",
			"Content-Type", "application/json"),
		calling("a bomb without a token", "", "/v1/put", gzipped(16), noToken, "Content-Encoding", "gzip"),
		calling("a million brackets", "shop", "/v1/put", deep, "400 INVALID"),
		calling("a batch of 100,000 jobs", "shop", "/v1/put-batch", `{"jobs":[`+strings.Repeat(`{},`, 99_999)+`{}]}`, "400"),
		calling("a wait of a year", "shop", "/v1/reserve", `{"queues":["shop/orders"],"wait":"8760h"}`, "400 INVALID"),
		calling("10,000 queues at once", "shop", "/v1/reserve", `{"queues":[`+strings.Repeat(`"shop/a",`, 9_999)+`"shop/a"]}`,
			"400"),
		calling("a forged lease", "shop", "/v1/ack", `{"lease":"`+strings.Repeat("A", 64)+`"}`, "400 INVALID"),
	}
	for _, c := range []struct{ name, text, want string }{
		{"a head of 1 MiB", "GET /livez HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "closed"},
		{"100,000 headers", "GET /livez HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 100_000) + "\r\n", "closed"},
		{"a path of 1 MiB", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", "closed"},
		{"no host", "GET /livez HTTP/1.1\r\n\r\n", "400 Bad Request: missing required Host header, closed"},
		{"two hosts", "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 Bad Request, closed"},
		{"a request within another's body", smuggled("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "401"},
		{"two lengths of a body", smuggled("Content-Length: 5\r\nContent-Length: 6\r\n"), "400 Bad Request, closed"},
		{"a body chunked in a way of one's own", smuggled("Transfer-Encoding: xchunked\r\n"), "501"},
		{"a length below zero", smuggled("Content-Length: -1\r\n"), "400 Bad Request, closed"},
		{"a length of a body beyond 64 bits", smuggled("Content-Length: 99999999999999999999\r\n"),
			"400 Bad Request, closed"},
		{"a space behind a header's name", smuggled("Content-Length : 5\r\n"),
			"400 Bad Request: invalid header name, closed"},
		{"a header on two lines", smuggled("X: a\r\n b\r\n"), "401"},
		{"a NUL in a header", "GET /livez HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", "400 Bad Request, closed"},
		{"a tunnel", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close\r\n\r\n", "401"},
		{"a trace", "TRACE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "401"},
		{"a method of one's own", "LET-ME-IN / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "401"},
		{"HTTP/0.9", "GET /livez\r\n\r\n", "400 Bad Request, closed"},
		{"HTTP/9.9", "GET /livez HTTP/9.9\r\nHost: x\r\n\r\n", "505"},
		{"no HTTP", strings.Repeat("\x00\x01\x02\x03", 1024), "closed"},
	} {
		all = append(all, saying(c.name, c.text, c.want))
	}
	return all
}

// smuggled is a request with headers of a body, in which another one is.
func smuggled(headers string) string {
	return "POST /livez2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers +
		"\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
}
