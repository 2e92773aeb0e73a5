// Package fromlmstfy brings jobs from lmstfy to Belfry, and says what queues of lmstfy hold.
package fromlmstfy
