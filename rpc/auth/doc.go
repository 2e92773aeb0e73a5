// Package auth decides which caller may do what: it reads tokens, checks their scopes, counts and
// logs refused calls, and writes the audit log. Who keeps the tokens is behind Authenticator.
package auth
