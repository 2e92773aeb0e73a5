// Package gossiptest is a network in memory for tests of gossip. It runs inside testing/synctest,
// where hours of it take seconds: it waits on channels only, and every delay is a timer.
package gossiptest
