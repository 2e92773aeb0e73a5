package daemon

import "github.com/belfrydb/belfry/rpc"

// What --ui can say.
const (
	uiOn   = "on"
	uiRead = "read"
	uiOff  = "off"
)

// dashboardMode returns what --ui says.
func dashboardMode(word string) rpc.DashboardMode {
	switch word {
	case uiOn:
		return rpc.DashboardOn
	case uiRead:
		return rpc.DashboardRead
	default:
		return rpc.DashboardOff
	}
}
