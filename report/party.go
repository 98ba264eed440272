package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/syncgate"
)

// PartyConditionPrefix and the name of a party make the type of the condition in which
// the party reports.
const PartyConditionPrefix = api.PartyPrefix

// The parties of Clusternet. Both write to child clusters in every sync mode: the agent
// applies, or rolls back drift; the hub applies, or prunes.
const (
	PartyAgent = "agent" // clusternet-agent
	PartyHub   = "hub"   // clusternet-controller-manager
)

// ReasonDrained is the reason of a party's condition that is True. It can also have
// ReasonDraining, ReasonSyncing, syncgate.ReasonMalformed and
// syncgate.ReasonFieldNotVisible. Of a pause that has ended it can be "Outdated".
const ReasonDrained = "Drained"

// reasonOutdated is the reason of what a party has reported of an earlier pause.
const reasonOutdated = "Outdated"

// partyStatus is what a party reports of a ManagedCluster.
type partyStatus struct {
	reason     string
	generation int64 // of the ManagedCluster
	details
}

// details are the message of a party's condition, in JSON: other parties read it.
type details struct {
	Text     string `json:"text"`            // for people: who holds the cluster, or what is wrong
	Holds    string `json:"holds,omitempty"` // the fingerprint of the hold annotations
	InFlight int    `json:"inFlight,omitempty"`
}

// isFor reports whether a status is about a ManagedCluster as it is now.
func (p *partyStatus) isFor(generation int64, holds string) bool {
	return p.generation == generation && p.Holds == holds
}

// unreadable reports whether the gate of the party can't read the pause.
func (p *partyStatus) unreadable() bool { return isUnreadable(p.reason) }

func (p *partyStatus) conditionStatus() metav1.ConditionStatus {
	switch {
	case p.reason == ReasonDrained:
		return metav1.ConditionTrue
	case p.reason == ReasonDraining || p.reason == ReasonSyncing:
		return metav1.ConditionFalse
	case p.unreadable():
		return metav1.ConditionUnknown
	default:
		return "" // not what a party reports
	}
}

// condition returns the condition in which a party reports this.
func (p *partyStatus) condition(party string) *metav1.Condition {
	message, err := json.Marshal(p.details)
	if err != nil {
		panic(err) // strings and a number can always be encoded
	}
	return &metav1.Condition{
		Type: PartyConditionPrefix + party, Status: p.conditionStatus(), Reason: p.reason,
		ObservedGeneration: p.generation, Message: string(message),
	}
}

// readPartyStatus returns what a party has reported in a condition. What can't be read
// counts as not reported.
func readPartyStatus(c *metav1.Condition) (partyStatus, bool) {
	p := partyStatus{reason: c.Reason, generation: c.ObservedGeneration}
	if json.Unmarshal([]byte(c.Message), &p.details) != nil {
		return p, false
	}
	p.Text = cut(p.Text)
	return p, p.conditionStatus() == c.Status && (p.InFlight > 0) == (p.reason == ReasonDraining)
}

// report returns what a party has reported, and whether it has.
func (o *observed) report(party string) (partyStatus, bool) {
	if c := o.parties[party]; c != nil {
		return readPartyStatus(c)
	}
	return partyStatus{}, false
}

// lacksReportOf reports whether a party that has reported in another observation has not
// reported in this one. The own party does not count: it reports again at once.
func (o *observed) lacksReportOf(other *observed, own string) bool {
	for party := range other.parties {
		_, had := other.report(party)
		if _, has := o.report(party); had && !has && party != own {
			return true
		}
	}
	return false
}

// withdraw marks in an object what other parties have reported of a pause that has ended
// for this one. A party that can't write for a while does not do it itself, and then its
// report would count for the next pause with the same holds.
func withdraw(object map[string]any, own string) error {
	o := observedIn(object)
	for party, c := range o.parties {
		if status, ok := o.report(party); !ok || party == own || status.reason == ReasonSyncing {
			continue
		}
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonOutdated, "the pause has ended for the "+own
		setTransitionTime(c)
		if err := setCondition(object, c); err != nil {
			return err
		}
	}
	return nil
}

// fingerprint identifies hold annotations, which are sorted: changes of them change no
// generation.
func fingerprint(holds []syncgate.Hold) string {
	if len(holds) == 0 {
		return ""
	}
	var text []byte
	for _, hold := range holds {
		text = fmt.Appendf(text, "%q=%q,", hold.Owner, hold.Reason)
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:6])
}

// parties returns which parties must have drained, sorted, and whether this one reports
// the gate. There are none when it is alone.
func (r *Reporter) parties(gate *syncgate.Gate) (required []string, reports bool) {
	switch {
	case r.opts.Party == "":
		return nil, true
	case r.opts.Parties == nil:
		required = []string{PartyAgent, PartyHub}
	default:
		required = slices.Clone(r.opts.Parties(gate.State()))
	}
	slices.Sort(required)
	return slices.Compact(required), slices.Contains(required, r.opts.Party)
}
