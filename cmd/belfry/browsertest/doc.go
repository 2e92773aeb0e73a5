// Package browsertest holds tests of the dashboard in a real browser, Chromium without a window,
// against real servers. They take the pictures of the documentation too. It has no code of its own
// for other packages.
package browsertest
