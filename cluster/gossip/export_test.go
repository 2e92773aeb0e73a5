package gossip

// StartWithLookup is Start with another way to resolve names.
var StartWithLookup = start
