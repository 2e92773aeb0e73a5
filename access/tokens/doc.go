// Package tokens is what clients prove themselves with: bearer tokens, what is kept of them, and
// what each allows. It keeps and asks nothing itself.
package tokens
