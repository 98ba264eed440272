package syncgate

// Subscriptions returns the number of callbacks that a hub and a gate of it keep.
func Subscriptions(h *Hub, g *Gate) int { return len(h.news.about(g)) }
