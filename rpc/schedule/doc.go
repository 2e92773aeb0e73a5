// Package schedule has the methods of ScheduleService: put, read, pause, run and preview schedules. A
// [Service] knows the node, the catalog and the calendars through interfaces, and no path or socket.
//
// See DESIGN.md beside this file for the reasons.
package schedule
