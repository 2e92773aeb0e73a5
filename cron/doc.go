// Package cron says when a schedule fires. It only calculates: it has no clock, goroutine or network.
//
// # Syntax
//
// An expression has five fields, or six with seconds first, separated by spaces or tabs:
//
//	second        0-59             only with six fields, else 0
//	minute        0-59
//	hour          0-23
//	day of month  1-31             and L, L-3, 15W, LW
//	month         1-12, JAN-DEC
//	day of week   0-7, SUN-SAT     0 and 7 are Sunday; and 5L, 5#2
//
// Each field is a list, separated by commas, of:
//
//   - all values; ? means the same
//     5             a value, or a name in any case
//     1-5, MON-FRI  a range; it may not go backwards, but for a SUN at its end
//     */15          every 15th value from the lowest on
//     3-59/10       every 10th value of a range
//     5/15          every 15th value from 5 to the highest
//     L, L-3        the last day of the month; the third day before it
//     15W           the day from Monday to Friday that is nearest to the 15th, in the same month
//     LW            the last day from Monday to Friday of the month
//     5L, 5#2       the last Friday of the month; its second Friday
//
// A month without such a day has none: 31W does not fire in April. If day of month and day of week
// are both set, a day fires that either of them has. If one of them begins with *, as in */2, both
// must have it. This is what cron does.
//
// @yearly (or @annually), @monthly, @weekly, @daily (or @midnight) and @hourly stand for the
// expressions that cron gives them.
//
// # Changes of the clock
//
// A clock that is put forward leaves out local times, a gap; one that is put back repeats some, a
// fold. DST says which firings follow from it. In New York on 2027-03-14 the clock goes from 02:00
// to 03:00, and on 2027-11-07 from 02:00 to 01:00:
//
//	                        ONCE                LITERAL         SKIP
//	30 2 * * *  03-14       at 03:00            not             not
//	30 1 * * *  11-07       at the first 01:30  at both         at the first
//	30 * * * *  11-07       at both 01:30       at both         at the first
//
// With ONCE, times are fixed if seconds, minutes and hours are all written without * and /. Times of
// one rule that fall into the same gap are one firing. The size of the change does not matter: a
// fixed time of a day that a zone left out fires when the next day begins.
//
// Excludes are expressions in the same zone; one with five fields stands for all seconds of its
// minutes. They take local times from those of the rule, before changes of the clock are considered.
// A firing that a gap has moved does not happen if its new time is excluded either.
package cron
