package server

import "errors"

// ReloadGossipKeys reads the file of gossip keys again. If it is not in order, the keys stay as they are.
func (s *Server) ReloadGossipKeys() error {
	if s.meeting == nil || s.meeting.gossip == nil {
		return errors.New("this node does not gossip")
	}
	return s.meeting.gossip.ReloadKeys()
}
