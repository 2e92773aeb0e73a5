// Package check checks the fields of requests against the limits of the server, and converts them
// to the values that the state machine takes.
//
// See DESIGN.md beside this file for the rules.
package check
