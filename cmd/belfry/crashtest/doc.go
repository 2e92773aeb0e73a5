// Package crashtest holds tests that kill a real server process again and again, on a real disk,
// and check what the SDK was told against what is there afterwards. It has no code of its own for
// other packages.
package crashtest
