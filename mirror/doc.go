// Package mirror moves the jobs of Redisson's delayed queues between Redis and Belfry, both ways,
// while both run: import, export, rollback, a bridge that keeps Redisson's consumers going, and the
// end.
package mirror
