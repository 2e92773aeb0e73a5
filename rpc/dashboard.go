package rpc

import (
	"io"
	"net/http"

	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/ui"
	"github.com/belfrydb/belfry/rpc/ui/login"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Dashboard configures the pages of package ui.
type Dashboard struct {
	Mode DashboardMode
	// Path is the path of the pages; the default is ui.DefaultPath.
	Path string
	// Secret seals the tokens of those who log in. Nodes with the same secret take each other's
	// logins; if it is empty, logins end with the process.
	Secret []byte
}

// DashboardMode says what people may do in the dashboard. The zero value serves no dashboard.
type DashboardMode int

const (
	// DashboardOff serves no dashboard.
	DashboardOff DashboardMode = iota
	// DashboardRead serves a dashboard without actions.
	DashboardRead
	// DashboardOn serves a dashboard with the actions that a person's token allows.
	DashboardOn
)

// mountDashboard prepares the pages. They make calls of this handler.
func (h *handler) mountDashboard(cfg Config) error {
	if cfg.Dashboard.Mode == DashboardOff {
		return nil
	}
	pages := ui.Config{
		API: inProcess{h}, Defaults: wire.DefaultSettings(), Path: cfg.Dashboard.Path,
		ReadOnly: cfg.Dashboard.Mode == DashboardRead, Name: cfg.Name,
		Version: cfg.Version, Logger: cfg.Logger, Now: cfg.Now,
	}
	var err error
	if cfg.Authenticator != nil {
		if pages.Sessions, err = login.NewSealer(cfg.Dashboard.Secret, cfg.Now); err != nil {
			return err
		}
	}
	h.dashboard, err = ui.New(pages)
	return err
}

// inProcess carries calls of the dashboard to a handler of this process. It marks them, so that each
// change that a person makes on a page is audited.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	memory := &memoryResponse{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(memory, r.WithContext(auth.OfDashboard(r.Context())))
	if r.Body != nil {
		_ = r.Body.Close() // a buffer
	}
	return &http.Response{
		Status: http.StatusText(memory.status), StatusCode: memory.status, Header: memory.header, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(&memory.body), ContentLength: int64(memory.body.Len()),
	}, nil
}

// isPage reports whether a path is one of the dashboard.
func (h *handler) isPage(path string) bool { return h.dashboard != nil && h.dashboard.Serves(path) }

// servePage serves a page or an action of the dashboard. A form has the limits of a call.
func (h *handler) servePage(w *reply, r *http.Request) {
	limited, release := h.bodies.Unary(w.ResponseWriter, r, "")
	defer release()
	h.dashboard.ServeHTTP(w, limited)
}
