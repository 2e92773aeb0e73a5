// Package digest has the fixed 64-bit hashes of a shard: of each logical record, whose sum modulo
// 2^64 is the digest that replicas compare, and of the keys of its tables. A hash of a record never
// changes for the same record; those of keys may, since they depend on a seed.
package digest
