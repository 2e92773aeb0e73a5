// Package admin answers the calls of belfry.v1.AdminService: queues and their settings, namespaces,
// nodes, tokens, backups and restores.
//
// See DESIGN.md beside this file for the rules.
package admin
