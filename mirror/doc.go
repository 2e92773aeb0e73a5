// Package mirror brings jobs from Redis to Belfry and back while both run: Redisson's delayed queues both ways, those of lmstfy and of Youzan's design one way.
package mirror
