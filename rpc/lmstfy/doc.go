// Package lmstfy serves lmstfy's HTTP API for its clients: the routes, the JSON, the status codes and
// the texts of lmstfy, carried out by the services of Belfry. A [Handler] keeps no jobs and no tokens
// of its own, and knows no path to a shard.
//
// See DESIGN.md beside this file for what maps to what, and why.
package lmstfy
