// Package queue has the methods of QueueService: put, reserve, finish and read jobs, and the stream
// Work. A [Service] knows the node and the catalog through interfaces, and no path or socket.
//
// See DESIGN.md beside this file for the reasons.
package queue
