package stream

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// NewUpgrade returns the request that asks a server for a stream.
func NewUpgrade(target *url.URL, protocol string) *http.Request {
	return &http.Request{
		Method: http.MethodGet, URL: target, Host: target.Host, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}},
	}
}

// Upgraded returns nil if a response grants the stream that was asked for.
func Upgraded(res *http.Response, protocol string) error {
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != protocol {
		_ = res.Body.Close() // the connection is not used any more
		return fmt.Errorf("the answer is %s", res.Status)
	}
	return nil
}

// Asked reports whether a request asks for a stream. If it does not, Asked has answered it, with a
// text that says what the path is for.
func Asked(w http.ResponseWriter, r *http.Request, protocol, purpose string) bool {
	if r.ProtoMajor == 1 && strings.EqualFold(r.Header.Get("Upgrade"), protocol) &&
		headerHas(r.Header, "Connection", "upgrade") {
		return true
	}
	if r.ProtoMajor == 1 { // these headers make an answer over HTTP/2 malformed
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", protocol)
	}
	http.Error(w, purpose, http.StatusUpgradeRequired)
	return false
}

// headerHas reports whether a header that is a list has a token.
func headerHas(header http.Header, name, token string) bool {
	for _, value := range header.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// acceptUpgrade answers a request for a stream. header has the values of config.Headers.
func acceptUpgrade(conn net.Conn, config *ServerConfig, header http.Header) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + config.Protocol +
		"\r\nDate: " + config.Now().UTC().Format(http.TimeFormat) + "\r\n")
	for _, name := range config.Headers {
		b.WriteString(name + ": " + header.Get(name) + "\r\n")
	}
	b.WriteString("\r\n")
	if err := conn.SetDeadline(time.Now().Add(config.Write.Wait)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
