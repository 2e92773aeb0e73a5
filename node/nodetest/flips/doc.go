// Package flips damages files of one node and judges what becomes of it: damage is reported, naming
// the file, or it is in bytes that nothing reads. See DESIGN.md.
package flips
