package rpc

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// rememberingCatalog remembers requests without end.
type rememberingCatalog struct {
	*backendtest.Catalog
	id, content string
	answers     map[string]remembered
}

type remembered struct {
	content string
	config  backend.QueueConfig
}

func (c rememberingCatalog) ForRequest(id, content string) backend.Catalog {
	c.id, c.content = id, content
	return c
}

func (c rememberingCatalog) once(change func() (backend.QueueConfig, error)) (backend.QueueConfig, error) {
	if a, ok := c.answers[c.id]; ok {
		if a.content != c.content {
			return backend.QueueConfig{}, otherContent(c.id)
		}
		return a.config, nil
	}
	config, err := change()
	if err == nil && c.id != "" {
		c.answers[c.id] = remembered{c.content, config}
	}
	return config, err
}

func (c rememberingCatalog) CreateQueue(ctx context.Context, name string, partitions uint32,
	settings fsm.Settings) (backend.QueueConfig, error) {
	return c.once(func() (backend.QueueConfig, error) {
		return c.Catalog.CreateQueue(ctx, name, partitions, settings)
	})
}

func (c rememberingCatalog) UpdateQueue(ctx context.Context, name string,
	change func(fsm.Settings) (fsm.Settings, error)) (backend.QueueConfig, error) {
	return c.once(func() (backend.QueueConfig, error) { return c.Catalog.UpdateQueue(ctx, name, change) })
}

// otherContent is the error of an id that was used before.
type otherContent string

func (e otherContent) Error() string { return string(e) }

func (e otherContent) OtherContent() string { return string(e) }

// TestRequestsOfTheCatalogAreRepeatable: the first answer comes again, and other content under the
// id is a mistake.
func TestRequestsOfTheCatalogAreRepeatable(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Catalog = rememberingCatalog{Catalog: backendtest.NewCatalog(), answers: map[string]remembered{}}
	})
	_, a := s.bothClients()
	for round := range 2 {
		made, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "a", Partitions: 2, RequestId: "c"})
		if err != nil || made.GetPartitions() != 2 || made.GetSettingsVersion() != 1 {
			t.Errorf("round %d: %v, %v", round, made, err)
		}
		changed, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
			Queue: "a", Settings: &belfryv1.QueueSettings{MaxJobs: proto.Uint32(8)}, RequestId: "u",
		})
		if err != nil || changed.GetSettingsVersion() != 2 {
			t.Errorf("round %d: %v, %v", round, changed, err)
		}
	}
	_, createErr := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "a", Partitions: 3, RequestId: "c"})
	_, updateErr := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "a", Settings: &belfryv1.QueueSettings{MaxJobs: proto.Uint32(9)}, RequestId: "u",
	})
	for name, err := range map[string]error{"create": createErr, "update": updateErr} {
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INVALID || f.Field != "requestId" {
			t.Errorf("%s with other content: %v", name, err)
		}
	}
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "a", RequestId: "d",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_EXISTS {
		t.Errorf("another request: %v", err)
	}
}
