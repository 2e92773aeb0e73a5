package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// DefaultGrace is how long a node may be silent before its replicas are replaced.
	DefaultGrace = 10 * time.Minute
	// DefaultFactor is the number of voters of a shard if there are as many nodes.
	DefaultFactor = 3

	factorMax = 7
	graceMin  = time.Second
	graceMax  = 30 * 24 * time.Hour
)

// Settings are the settings of the whole cluster. The catalog stores them, so that they are the
// same on all nodes and outlive each of them.
type Settings struct {
	// Factor is the number of voters that each shard should have, if there are enough nodes: 1, 3,
	// 5 or 7. An even number would survive no more failures than the odd one below it.
	Factor int `json:"factor,omitempty"`
	// Grace is how long a node may be silent before its replicas are replaced, 1 s to 30 days.
	Grace time.Duration `json:"graceNanos,omitempty"`
	// MinVoters is the number of voters that a shard must have to accept mutations, 1 to Factor.
	// Format 2.
	MinVoters int `json:"minVoters,omitempty"`
	// NoAutoCreate sets whether a put into a queue that does not exist is refused. Otherwise such a
	// put creates the queue. Format 2.
	NoAutoCreate *bool `json:"noAutoCreate,omitempty"`
}

// SettingError says which setting of a cluster cannot have a value, and which values it may have.
type SettingError struct {
	Setting Setting
	// Text names the requested value and the permitted ones.
	Text string
}

// Setting names one of the settings, in words.
type Setting string

// The settings.
const (
	FactorSetting Setting = "replication factor"
	GraceSetting  Setting = "grace period"
	// MinVotersSetting is raised by Configure, and lowered by LowerMinVoters only.
	MinVotersSetting Setting = "min-voters"
	// NoAutoCreateSetting sets whether only CreateQueue creates queues.
	NoAutoCreateSetting Setting = "no-auto-create"
)

func (e *SettingError) Error() string { return string(e.Setting) + ": " + e.Text }

// Check returns the fault of settings, as a *SettingError. A zero is no fault: it stands for the
// present value.
func (s Settings) Check() error {
	switch {
	case s.Factor < 0 || s.Factor > factorMax || s.Factor != 0 && s.Factor%2 == 0:
		return &SettingError{FactorSetting, fmt.Sprintf("have %d, want an odd number, 1 to %d: an even number of voters "+
			"survives no more failures than one voter less", s.Factor, factorMax)}
	case s.MinVoters < 0 || s.MinVoters > factorMax:
		return &SettingError{MinVotersSetting, fmt.Sprintf("have %d, want 1 to the replication factor", s.MinVoters)}
	case s.Grace != 0 && (s.Grace < graceMin || s.Grace > graceMax):
		return &SettingError{GraceSetting, fmt.Sprintf("have %v, want %v to %v", s.Grace, graceMin, graceMax)}
	}
	return nil
}

// over returns s with every zero replaced by the value in below.
func (s Settings) over(below Settings) Settings {
	if s.Factor == 0 {
		s.Factor = below.Factor
	}
	if s.Grace == 0 {
		s.Grace = below.Grace
	}
	if s.MinVoters == 0 {
		s.MinVoters = below.MinVoters
	}
	if s.NoAutoCreate == nil {
		s.NoAutoCreate = below.NoAutoCreate
	}
	return s
}

// Settings returns the cluster's settings as this node has them, from memory.
func (c *Catalog) Settings() (s Settings) {
	c.view(func(m *machine) { s = m.state.Settings })
	return s.withDefaults()
}

// withDefaults returns s with every zero replaced by its default.
func (s Settings) withDefaults() Settings {
	return s.over(Settings{Factor: DefaultFactor, Grace: DefaultGrace, MinVoters: 1, NoAutoCreate: new(false)})
}

// Configure changes the settings of the cluster that are not zero in s, and returns the resulting
// settings. A *SettingError says that s is invalid. It may be repeated.
func (c *Catalog) Configure(ctx context.Context, s Settings) (Settings, error) {
	return c.proposeSettings(ctx, command{Settle: &s})
}

// LowerMinVoters makes shards with fewer voters than before accept mutations, whose acknowledged
// data is then on fewer disks. It may be repeated.
func (c *Catalog) LowerMinVoters(ctx context.Context, least int) (Settings, error) {
	return c.proposeSettings(ctx, command{Settle: &Settings{MinVoters: least}, Lower: true})
}

// proposeSettings changes settings of the cluster.
func (c *Catalog) proposeSettings(ctx context.Context, cmd command) (s Settings, err error) {
	c.view(func(m *machine) { err = m.checkSettings(&cmd) })
	if err != nil {
		return Settings{}, err
	}
	if _, err := c.propose(ctx, cmd); err != nil {
		return Settings{}, fmt.Errorf("changing the settings of the cluster: %w", err)
	}
	return c.Settings(), nil
}

// settingsFormat is the format that has MinVoters and NoAutoCreate.
const settingsFormat fsm.Format = 2

// checkSettings returns the fault of a change of settings, as a *SettingError.
func (m *machine) checkSettings(c *command) error {
	if err := c.Settle.Check(); err != nil {
		return err
	}
	now := m.state.Settings.withDefaults()
	after := c.Settle.over(now)
	switch {
	case after.MinVoters > after.Factor && c.Settle.MinVoters == 0:
		return &SettingError{FactorSetting, fmt.Sprintf("have %d, want at least min-voters, which is %d", after.Factor,
			after.MinVoters)}
	case after.MinVoters > after.Factor:
		return &SettingError{MinVotersSetting, fmt.Sprintf("have %d, want 1 to the replication factor, which is %d",
			after.MinVoters, after.Factor)}
	case m.state.Format < settingsFormat && (c.Settle.MinVoters != 0 || c.Settle.NoAutoCreate != nil):
		setting := MinVotersSetting
		if c.Settle.MinVoters == 0 {
			setting = NoAutoCreateSetting
		}
		return &SettingError{setting, fmt.Sprintf("the cluster speaks format %d, and format %d has this setting: run this "+
			"version of belfry on every node first",
			m.state.Format, settingsFormat)}
	case after.MinVoters < now.MinVoters && !c.Lower:
		return &SettingError{MinVotersSetting, fmt.Sprintf("have %d, and %d holds: with fewer voters what is acknowledged "+
			"is on fewer disks; say that this is meant, with --lower-min-voters",
			after.MinVoters, now.MinVoters)}
	}
	return nil
}
