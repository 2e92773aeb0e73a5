package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/lab"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// doorkeeper is a server that notes what calls carry, and refuses them all but the making of
// tokens.
type doorkeeper struct {
	belfryv1connect.UnimplementedQueueServiceHandler
	belfryv1connect.UnimplementedAdminServiceHandler
	*httptest.Server

	mu      sync.Mutex
	carried []string
}

func (d *doorkeeper) CreateToken(context.Context, *belfryv1.CreateTokenRequest) (*belfryv1.CreateTokenResponse, error) {
	return &belfryv1.CreateTokenResponse{Token: "belfry_new_secret", Record: &belfryv1.Token{Id: "new"}}, nil
}

func (d *doorkeeper) Put(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("nobody is let in"))
}

// TLS, Root and Roots implement Secrets.
func (d *doorkeeper) TLS(string) *tls.Config {
	return d.Client().Transport.(*http.Transport).TLSClientConfig.Clone() //nolint:forcetypeassert // httptest makes one
}

func (d *doorkeeper) Root() lab.Token { return lab.Token{ID: "root", Text: "belfry_root_secret"} }

func (d *doorkeeper) Roots() []lab.Root {
	return []lab.Root{{Token: lab.Token{ID: "old", Text: "belfry_old_secret"}, Ended: time.Second}, {Token: d.Root()}}
}

// newDoorkeeper starts one, and returns what clients of it talk to.
func newDoorkeeper(t *testing.T) (*doorkeeper, Target) {
	d := &doorkeeper{}
	mux := http.NewServeMux()
	mux.Handle(belfryv1connect.NewQueueServiceHandler(d))
	mux.Handle(belfryv1connect.NewAdminServiceHandler(d))
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.carried = append(d.carried, strings.Join(r.Header.Values("Authorization"), "|"))
		d.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	d.EnableHTTP2 = true
	d.StartTLS()
	t.Cleanup(d.Close)
	return d, Target{
		History: history.New(), Nodes: func() []string { return []string{"n1"} }, Secrets: d,
		URL: func(string, string) (string, error) { return d.URL, nil },
	}
}

// TestCarried: a call carries the client's credential, else the root token in use, by both
// protocols, and the history says which. No secret is in it.
func TestCarried(t *testing.T) {
	d, target := newDoorkeeper(t)
	spoken := map[bool]bool{}
	for seed := uint64(0); len(spoken) < 2; seed++ {
		c, err := NewClient(target, "access", "carrier", seed)
		if err != nil {
			t.Fatal(err)
		}
		spoken[c.grpc] = true
		made, o := c.createToken(t.Context(), &belfryv1.CreateTokenRequest{Scopes: []string{"put:a"}})
		if made.Text != "belfry_new_secret" || made.ID != "new" || o.Token != "root" ||
			o.Response.(*belfryv1.CreateTokenResponse).GetToken() != "" {
			t.Errorf("a token was made: %+v, %+v", made, o)
		}
		for _, credential := range []*Credential{{}, made,
			{Token: lab.Token{ID: "root", Text: "belfry_root_other"}, Forged: true}} {
			c.credential = credential
			_, o := c.put(t.Context(), c.tenantPut("a"))
			if o.OK() || o.Token != credential.ID || o.Forged != credential.Forged {
				t.Errorf("with %+v: %+v", credential, o)
			}
			want := "Bearer " + credential.Text
			if credential.Text == "" {
				want = ""
			}
			d.mu.Lock()
			if got := d.carried[len(d.carried)-1]; got != want {
				t.Errorf("the call carried %q, should be %q", got, want)
			}
			d.mu.Unlock()
		}
		c.Close()
	}
	var text strings.Builder
	if err := target.History.Write(&text); err != nil || strings.Contains(text.String(), "_secret") {
		t.Errorf("a secret is in the history, or it cannot be written (%v)", err)
	}
}

// TestUnfit: what an intruder carries is of every kind, and none of it is good for the victim's
// queues.
func TestUnfit(t *testing.T) {
	_, target := newDoorkeeper(t)
	c, err := NewClient(target, "access", "intruder", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	of := func(name string) *Credential {
		return &Credential{Token: lab.Token{ID: name, Text: "belfry_" + name + "_x"}}
	}
	own, victim := newTenant("own"), newTenant("victim")
	for _, tenant := range []*tenant{own, victim} {
		tenant.replace(false, of(tenant.name+"-producer"))
		tenant.replace(true, of(tenant.name+"-consumer"))
	}
	victim.keepEnded(of("ended"))
	kinds := map[string]bool{}
	for range 500 {
		u := c.unfit(own, victim)
		switch {
		case u.Text == "":
			kinds["none"] = true
		case u.Forged:
			kinds["forged"] = strings.HasPrefix(u.ID, "victim-") && strings.HasPrefix(u.Text, "belfry_"+u.ID+"_") &&
				len(u.Text) > len("belfry__")+len(u.ID)+40
		case strings.HasPrefix(u.ID, "victim-"):
			t.Fatalf("an intruder was given %s, which is good", u.ID)
		case u.ID == "old", u.ID == "ended", strings.HasPrefix(u.ID, "own-"):
			kinds[strings.TrimSuffix(strings.TrimSuffix(u.ID, "producer"), "consumer")] = true
		default:
			kinds["foreign"] = strings.HasPrefix(u.Text, "belfry_"+u.ID+"_")
		}
	}
	for _, kind := range []string{"none", "forged", "old", "ended", "own-", "foreign"} {
		if !kinds[kind] {
			t.Errorf("of the kind %q there was none, or a wrong one", kind)
		}
	}
}

// TestOpenAndSecured: the workload access is of secured clusters only, that of Redisson of open
// ones only.
func TestOpenAndSecured(t *testing.T) {
	open, secured := Open(), Secured()
	if NeedSecrets(open) || !NeedRedis(open) || !NeedSecrets(secured) || NeedRedis(secured) || len(open)+1 != len(All()) ||
		len(secured)+1 != len(All()) {
		t.Errorf("open %q, secured %q", Names(open), Names(secured))
	}
}
