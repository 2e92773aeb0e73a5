// Package codec turns the bytes of requests into messages, and messages into the bytes of answers,
// in JSON and in binary.
//
// See DESIGN.md beside this file for the reasons.
package codec
