// Package adapter adapts package cluster to the interfaces that package rpc declares. The two do
// not import each other: their types differ, and errors of cluster that are the caller's become
// faults of rpc here.
package adapter
