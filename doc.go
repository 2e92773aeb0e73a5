// Package belfry is the root of the module and holds no code. Belfry, a clustered delay-queue
// database, is the command in cmd/belfry, and the Go SDK is in client.
//
// The tests of this package are the rules of the house: allowed imports, determinism of the state
// machine, the size of files and functions, and content that may not enter the repository. Each
// rule is a function over a source tree. TestHouse runs all of them over this tree, and a planted
// violation proves each.
package belfry
