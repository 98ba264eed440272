package syncgate

// Subscriptions returns the number of callbacks that a hub and a gate of it keep.
func Subscriptions(h *Hub, g *Gate) int { return len(h.dispatcher.subscriptionsOf(g)) }

// Park parks a key as Do does once the gate has refused it.
func Park[K comparable](b *Backlog[K], g *Gate, key K) (bool, error) { return b.park(g, key) }
