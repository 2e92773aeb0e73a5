package admin

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/rpc/admin/keys"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// Config configures a Service. Every field but Backups is required.
type Config struct {
	// Router leads to the node, to the catalog and to the shards of queues.
	Router  shardcall.Router
	Cluster backend.Cluster
	// Rules has the limits and permissions that each request is checked against.
	Rules *check.Rules
	// Drain ends backups and restores when the server stops.
	Drain *drain.Signal
	// Logger receives what an operator should know of a call. Calls themselves are not logged.
	Logger *slog.Logger
	// Registry receives the metric of backups.
	Registry prometheus.Registerer
	// Backups keeps the time of the last complete backup over restarts. If it is nil, the time is
	// lost when the process ends.
	Backups BackupTimes
	// Trail has the last audited calls of this node.
	Trail *auth.Trail
}

// Service answers belfry.v1.AdminService. It implements belfryv1connect.AdminServiceHandler.
type Service struct {
	*keys.Service // the methods that concern keys

	router  shardcall.Router
	cluster backend.Cluster
	rules   *check.Rules
	drain   *drain.Signal
	logger  *slog.Logger
	backups *backups
	trail   *auth.Trail
}

// New returns a service, and registers its metric and its answer to questions about audited calls.
func New(cfg Config) (*Service, error) {
	backups, err := newBackups(cfg)
	if err != nil {
		return nil, err
	}
	s := &Service{
		Service: keys.New(cfg.Router, cfg.Rules),
		router:  cfg.Router, cluster: cfg.Cluster, rules: cfg.Rules, drain: cfg.Drain, logger: cfg.Logger, backups: backups,
		trail: cfg.Trail,
	}
	s.cluster.AnswerAudit(s.answerAudit)
	return s, nil
}
