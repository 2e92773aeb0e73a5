package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestSentinel: it makes the replica the primary once the primary is silent, also where that hangs.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary := Start(t)
	replica := primary.Replica(t)
	sentinel, url := primary.Sentinel(t)
	if want := "redis+sentinel://" + sentinel.Address() + "?master_name=primary"; url != want {
		t.Errorf("the URL is %s, want %s", url, want)
	}
	primary.Pause()
	sentinel.Primary(replica)
	if err := replica.Client().Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Errorf("writing to the new primary: %v", err)
	}
	primary.Resume()
}

// TestStartCluster: slots are spread, the replica follows, and a slot moves with its keys.
func TestStartCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Primaries[0].Address()}})
	defer r.Close()
	from, slot := c.Owner(t, "key")
	if err := from.Client().Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	to := c.Primaries[0]
	if to == from {
		to = c.Primaries[1]
	}
	c.Move(t, slot, from, to, func() {
		if err := to.Client().Get(t.Context(), "key").Err(); !redis.HasErrorPrefix(err, "MOVED") {
			t.Errorf("it has moved already: %v", err)
		}
	})
	if got, err := to.Client().Get(t.Context(), "key").Result(); got != "value" || err != nil {
		t.Errorf("the key moved as %q, %v", got, err)
	}
	if got, err := r.Get(t.Context(), "key").Result(); got != "value" || err != nil {
		t.Errorf("through the cluster it is %q, %v", got, err)
	}
}

// TestTLS: the server answers clients that know its authority, and wants a certificate of theirs if
// told to.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := NewAuthority(t)
	s := Start(t, WithMutualTLS(a))
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	config := a.config()
	config.Certificates = nil
	r := redis.NewClient(&redis.Options{Addr: s.Address(), TLSConfig: config, MaxRetries: -1, DialerRetries: 1})
	defer r.Close()
	if err := r.Ping(t.Context()).Err(); err == nil {
		t.Error("it answers without a certificate")
	}
}
