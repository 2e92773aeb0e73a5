// Package belfry is the root of the module and holds no code: Belfry, a clustered delay-queue
// database, is the command in cmd/belfry, and the Go SDK is in client.
//
// The tests of this package are the rules of the house: who may import whom, what keeps the state
// machine deterministic, how long a file and a function may be, and what may not enter the
// repository. Each rule is a function over a source tree; TestHouse runs all of them over this
// tree, and each is proven by a planted violation.
package belfry
