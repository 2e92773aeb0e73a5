package browsertest

import (
	"testing"
)

// TestBrowser drives the dashboard as people do. All parts share one browser and two servers: one
// that needs no token, and one that does.
func TestBrowser(t *testing.T) {
	axe := readAxe(t)
	browser := startBrowser(t)
	free, secured := startOpen(t), startSecured(t)
	fill(t, free)
	part := func(name string, s *site, test func(*testing.T, *tab)) {
		t.Run(name, func(t *testing.T) { test(t, open(browser, t, s)) })
	}
	part("Screens", free, testScreens)
	part("Phone", free, testPhone)
	part("Labels", free, testLabels)
	part("Contrast", free, testContrast)
	part("Axe", free, func(t *testing.T, b *tab) { testAxe(t, b, axe) })
	part("Focus", free, testFocus)
	part("Actions", free, func(t *testing.T, b *tab) { testActions(t, b, "keyboard") })
	part("ActionsWithoutScripts", free, func(t *testing.T, b *tab) {
		b.scripts(false)
		testActions(t, b, "scriptless")
	})
	part("Many", free, func(t *testing.T, b *tab) { testMany(t, b, "many") })
	part("ManyWithoutScripts", free, func(t *testing.T, b *tab) {
		b.scripts(false)
		testMany(t, b, "many-scriptless")
	})
	part("Consumers", free, func(t *testing.T, b *tab) { testConsumers(t, b, "gone") })
	part("ConsumersWithoutScripts", free, func(t *testing.T, b *tab) {
		b.scripts(false)
		testConsumers(t, b, "gone-scriptless")
	})
	part("Rooms", free, func(t *testing.T, b *tab) { testRooms(t, b, "rooms") })
	part("RoomsWithoutScripts", free, func(t *testing.T, b *tab) {
		b.scripts(false)
		testRooms(t, b, "rooms-scriptless")
	})
	part("Forms", free, testForms)
	part("Theme", free, testTheme)
	part("Refresh", free, testRefresh)
	part("Offline", free, testOffline)
	part("Download", free, testDownload)
	part("Hostile", free, testHostile)
	part("Session", secured, func(t *testing.T, b *tab) { testSession(t, b, axe) })
}
