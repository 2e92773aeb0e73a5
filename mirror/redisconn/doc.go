// Package redisconn reaches a Redis: a server, a Redis Cluster, or the primary that a Sentinel
// knows. It makes clients from URLs, says what errors mean, and reads types and pages of keys.
package redisconn
