package catalog

import (
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/node"
)

// decodeCommand decodes an entry of the log. An entry that it refuses ends a node that finds it in
// the log. Every entry is therefore decoded before it is logged.
func decodeCommand(entry []byte) (command, error) {
	if err := formatOf(entry); err != nil {
		return command{}, err
	}
	var c command
	if err := decodeStrictly(entry, &c); err != nil {
		return command{}, err
	}
	commands := 0
	for _, is := range []bool{
		c.Found != nil, c.Join != nil, c.Leave != nil, c.Drain != nil, c.Place != nil, c.Settle != nil, c.Raise != nil,
		c.Create != nil, c.Activate != nil, c.Configure != nil, c.Delete != nil, c.Forget != nil,
		c.AddToken != nil, c.EndToken != nil,
		c.Limit != nil, c.ShardQuotas != nil,
		c.StartTask != nil, c.AdvanceTask != nil, c.StopTask != nil,
	} {
		if is {
			commands++
		}
	}
	if commands == 0 {
		return command{}, errors.New("it holds no command of this program")
	}
	if commands > 1 {
		return command{}, fmt.Errorf("it holds %d commands, not one", commands)
	}
	return c, nil
}

// check returns the reason why a command is invalid in this state, nil if it is valid. An invalid
// command is not logged. If one is in the log anyway, it changes nothing.
func (m *machine) check(c *command) error {
	shards := m.state.Foundation.Shards // 0 before the cluster is recorded: then it bounds nothing
	switch {
	case c.Found != nil && (c.Found.ClusterID == "" || c.Found.Shards < 1):
		return fmt.Errorf("%+v is no cluster", *c.Found)
	case c.Join != nil && (c.Join.Name == "" || c.Join.ServerID == ""):
		return fmt.Errorf("a node without name or server id: %+v", *c.Join)
	case c.Place != nil && shards > 0 && int64(c.Place.Shard) >= int64(shards):
		return fmt.Errorf("shard %d of %d", c.Place.Shard, shards)
	case c.Settle != nil && m.checkSettings(c) != nil:
		return m.checkSettings(c)
	case c.Lower && (c.Settle == nil || c.Settle.MinVoters == 0):
		return errors.New("a lowering of nothing")
	case c.Create != nil && (c.Create.Name == "" || c.Create.Partitions < 1):
		return errors.New("a queue without a name or without partitions")
	case c.Create != nil && shards > 0 && int64(c.Create.Partitions) > int64(shards):
		return fmt.Errorf("%d partitions in a cluster of %d shards", c.Create.Partitions, shards)
	case c.Configure != nil && c.Configure.Name == "":
		return errors.New("settings without a queue")
	case c.AddToken != nil && c.AddToken.Check() != nil:
		return c.AddToken.Check()
	case c.EndToken != nil && c.EndToken.ID == "":
		return errors.New("the end of a token without an id")
	case c.Limit != nil && c.Limit.Name == "":
		return errors.New("a quota without a namespace")
	case c.ShardQuotas != nil && shards > 0 && int64(c.ShardQuotas.Shard) >= int64(shards):
		return fmt.Errorf("a quota of shard %d of %d", c.ShardQuotas.Shard, shards)
	case c.StartTask != nil || c.AdvanceTask != nil || c.StopTask != nil:
		return m.checkTask(c)
	case c.Request != nil && c.Request.ID == "":
		return errors.New("a request without an id")
	}
	return nil
}

// validate returns the command of an entry if it may be logged.
func (c *Catalog) validate(entry []byte) (cmd command, err error) {
	if cmd, err = decodeCommand(entry); err == nil {
		c.view(func(m *machine) { err = m.check(&cmd) })
	}
	if err != nil {
		return command{}, fmt.Errorf("%w: the catalog takes no such entry: %w", node.ErrCanceled, err)
	}
	return cmd, nil
}
