// Package keys lists, pauses, resumes and purges the keys of queues.
package keys
