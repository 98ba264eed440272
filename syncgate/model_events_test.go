//go:build go1.25

package syncgate_test

import (
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/internal/testutil/random"
	"github.com/clusternet/syncgate/syncgate"
)

// The steps of the model test, and the events among them.

// step is one step of a sequence. A step that makes no sense in its place does nothing,
// so rapid can leave out any other step when it shrinks a sequence.
type step struct {
	Do      string
	A, B, C int
	Burst   bool // the next step follows before callbacks and replays have run
}

func (s step) String() string {
	text := fmt.Sprintf("%s(%d, %d, %d)", s.Do, s.A, s.B, s.C)
	if s.Burst {
		text += "..."
	}
	return text
}

// steps are all kinds of steps. A kind that is here twice comes twice as often.
func steps() *rapid.Generator[[]step] {
	kinds := []string{
		"edit", "edit", "edit", "edit", "edit", "pause", "pause", "release", "release", "release", "delete", "delete", "older",
		"relist", "relist", "select by label", "select by field", "pass", "pass", "settle", "silence", "contact", "fault", "nonsense",
		"subscribe", "subscribe hub", "unsubscribe", "block callbacks", "free callbacks",
		"operate", "operate", "nest", "leave", "leave", "leave", "late", "done", "panic",
		"await open", "await drained",
		"park", "park", "park", "begin work", "end work", "forget", "close in replay", "race",
		"sync", "sync", "stop",
	}
	return random.Steps(func(t *rapid.T) step {
		s := step{Do: kinds[random.Index(t, len(kinds))], A: random.Index(t, 3), B: random.Index(t, 16), C: random.Index(t, 4), Burst: rapid.Bool().Draw(t, "burst")}
		if s.Do == "stop" && s.B != 0 { // rarely
			s.Do = "edit"
		}
		return s
	})
}

var modelClusters = []string{"blue", "red", ""} // the last one counts for no gate

var modelNames = []string{"a", "b", "c"}

// modelSource is a source that selects on the server, as the informer of an agent does.
type modelSource struct {
	*tu.Source
	byLabel atomic.Bool
}

// Selection is what the hub asks for.
func (s *modelSource) Selection() informer.Selection {
	if s.byLabel.Load() {
		return informer.ByLabel
	}
	return informer.ByField
}

// events delivers ManagedClusters to the hub, and takes them into the model.
type events struct {
	source   *modelSource
	clusters map[string]*modelCluster

	delivered map[string]*unstructured.Unstructured // what the informer has
	earlier   map[string][]*unstructured.Unstructured
	hidden    map[string]*unstructured.Unstructured // what the informer had, and does not select by label
	uids      int

	plain     bool // the informer can't tell a relist from a watch
	synced    bool
	relist    time.Time // when the relist began that is being delivered; zero: none is
	lastEvent time.Time
}

// relisting reports whether a relist is still being delivered.
func (e *events) relisting() bool {
	now := time.Now()
	if now.Sub(e.lastEvent) >= quietTime || now.Sub(e.relist) >= relistLimit {
		e.relist = time.Time{}
		for _, c := range e.clusters {
			c.leftClosed, c.leftByWatch = false, false
		}
	}
	return !e.relist.IsZero()
}

// begin notes that an event is delivered. It reports whether it may be a part of a relist.
func (e *events) begin() (relisting bool) {
	relisting = e.relisting()
	e.lastEvent = time.Now()
	if e.plain && !relisting {
		e.relist, relisting = e.lastEvent, true
	}
	return relisting
}

// read is what the model reads of an object.
func read(obj *unstructured.Unstructured) *modelObject {
	spec := obj.Object["spec"].(map[string]any)
	o := &modelObject{
		uid: string(obj.GetUID()), generation: obj.GetGeneration(), flag: spec["syncPaused"], holds: map[string]any{},
	}
	o.cluster, _ = spec["clusterId"].(string)
	annotations, _ := obj.Object["metadata"].(map[string]any)["annotations"].(map[string]any)
	for name, value := range annotations {
		if len(name) > len(syncgate.HoldPrefix) && name[:len(syncgate.HoldPrefix)] == syncgate.HoldPrefix {
			o.holds[name[len(syncgate.HoldPrefix):]] = value
		}
	}
	return o
}

// deliver delivers an object as added or updated.
func (e *events) deliver(name string, obj *unstructured.Unstructured) {
	before := e.delivered[name]
	relisting := e.begin()
	o := read(obj)
	var was *modelObject
	for id, c := range e.clusters {
		known := c.objects[name]
		if known == nil {
			continue
		}
		o.loses(known)
		if id == o.cluster {
			was = known
			continue
		}
		c.remove(name, !relisting, false)
	}
	if c := e.clusters[o.cluster]; c != nil {
		c.objects[name] = o
		c.change(!relisting || e.plain && was != nil && len(c.objects) == 1)
	}
	e.delivered[name] = obj
	delete(e.hidden, name)
	e.earlier[name] = append(e.earlier[name], obj)
	if before == nil {
		e.source.Add(obj)
	} else {
		e.source.Update(before, obj)
	}
}

// remove delivers a deletion. how: 0 with the object, 1 with an earlier one, else with
// nothing but the key.
func (e *events) remove(name string, how int) {
	obj := e.delivered[name]
	if obj == nil {
		return
	}
	if how > 0 && !e.plain && !e.relisting() { // an informer delivers such a value in a relist
		e.beginRelist()
	}
	relisting := e.begin()
	for _, c := range e.clusters {
		if c.objects[name] != nil {
			c.remove(name, !relisting, how == 0)
		}
	}
	delete(e.delivered, name)
	switch how {
	case 0:
		e.source.Delete(obj)
	case 1:
		e.source.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/" + name, Obj: e.earlier[name][0]})
	default:
		e.source.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/" + name})
	}
}

// edit makes a new version of an object and delivers it.
func (e *events) edit(name string, kind, variant int) {
	obj := e.delivered[name]
	if obj == nil {
		e.uids++
		obj = tu.ManagedCluster(ns, name, modelClusters[variant%2], tu.UID(fmt.Sprint("uid-", e.uids)))
		if kind == 0 { // as it is
			e.deliver(name, obj)
			return
		}
	}
	e.deliver(name, tu.With(obj, e.edits(kind, variant)...))
}

func (e *events) edits(kind, variant int) []tu.Option {
	owner := [...]string{"ci", "backup", "ops", "ci"}[variant]
	switch kind {
	case 0:
		return nil // delivered again
	case 1:
		if variant == 3 && !e.source.byLabel.Load() {
			return []tu.Option{tu.Labelled("other")}
		}
		return []tu.Option{tu.Heartbeat(time.Now())}
	case 2, 3:
		return []tu.Option{tu.Paused(true)}
	case 4:
		return []tu.Option{tu.Paused(false)}
	case 5, 6:
		return []tu.Option{tu.Unpaused()}
	case 7:
		return []tu.Option{tu.Paused([]any{"true", int64(1), map[string]any{}, 0.5}[variant])}
	case 8, 9:
		return []tu.Option{tu.Held(owner, "because")}
	case 10:
		return []tu.Option{tu.Held(owner, "false")}
	case 11:
		return []tu.Option{tu.Released(owner)}
	case 12:
		return []tu.Option{tu.Annotated(syncgate.HoldPrefix+owner, int64(variant))}
	case 13:
		e.uids++
		return []tu.Option{tu.UID(fmt.Sprint("uid-", e.uids)), tu.Released("ci")}
	case 14:
		return []tu.Option{tu.ClusterID(modelClusters[variant%3]), tu.Labelled(modelClusters[variant%3]), bump}
	default:
		return []tu.Option{loseFlag}
	}
}

// bump makes an edit one of the spec.
func bump(object map[string]any) {
	metadata := maps.Clone(object["metadata"].(map[string]any))
	n, _ := metadata["generation"].(int64)
	metadata["generation"] = n + 1
	object["metadata"] = metadata
}

// loseFlag removes the flag as a CRD without the field does: the generation stays.
func loseFlag(object map[string]any) {
	delete(object["spec"].(map[string]any), "syncPaused")
}

// older delivers an earlier version of an object again: an informer never promises more
// than that the last delivery counts.
func (e *events) older(name string, n int) {
	versions := e.earlier[name]
	if e.delivered[name] == nil || len(versions) == 0 || e.source.byLabel.Load() {
		return
	}
	e.deliver(name, versions[n%len(versions)].DeepCopy())
}

// set pauses the cluster of an object, or releases it from everything.
func (e *events) set(name string, closed bool) {
	obj := e.delivered[name]
	switch {
	case obj == nil:
		e.edit(name, 0, 0)
	case closed:
		e.deliver(name, tu.With(obj, tu.Paused(true)))
	default:
		e.deliver(name, tu.With(obj, tu.Unpaused(), tu.Released("ci"), tu.Released("backup"), tu.Released("ops")))
	}
}

// mislabelled reports whether an object counts for a cluster that its label does not name.
func mislabelled(obj *unstructured.Unstructured) bool {
	return obj.GetLabels()[api.ClusterIDLabel] != read(obj).cluster
}

// selectByLabel relists by label: what has a wrong label is not found, and still counts.
func (e *events) selectByLabel() {
	if e.plain || !e.synced || e.source.byLabel.Load() {
		return
	}
	e.beginRelist()
	e.source.byLabel.Store(true)
	for _, name := range modelNames {
		if obj := e.delivered[name]; obj != nil && mislabelled(obj) {
			delete(e.delivered, name)
			if read(obj).cluster != "" {
				e.hidden[name] = obj
			}
			e.source.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/" + name, Obj: obj})
		}
	}
}

// selectByField relists by field: of what is hidden, some objects exist no longer. which
// has a bit for each.
func (e *events) selectByField(which int) {
	if !e.source.byLabel.Load() {
		return
	}
	e.beginRelist()
	e.source.byLabel.Store(false)
	for i, name := range modelNames {
		if obj := e.hidden[name]; obj != nil && which>>i&1 == 0 {
			e.deliver(name, obj)
		}
	}
}

// removeHidden takes out of the model what is gone, once the relist by field is settled.
func (e *events) removeHidden() {
	for name := range e.hidden {
		for _, c := range e.clusters {
			if c.objects[name] != nil {
				c.remove(name, true, false)
			}
		}
	}
	clear(e.hidden)
}

func (e *events) beginRelist() {
	e.source.Relist()
	e.relist, e.lastEvent = time.Now(), time.Now()
}

// event does a step that is an event, and reports whether it is one.
func (e *events) event(s step) bool {
	name := modelNames[s.A]
	switch s.Do {
	case "edit":
		e.edit(name, s.B, s.C)
	case "pause":
		e.set(name, true)
	case "release":
		e.set(name, false)
	case "delete":
		e.remove(name, s.C%3)
	case "older":
		e.older(name, s.B)
	case "relist":
		if !e.plain {
			e.beginRelist()
		}
	case "select by label":
		e.selectByLabel()
	case "nonsense":
		e.source.Add([]any{"no object", nil, 7, strconv.Itoa}[s.C])
		e.begin()
	default:
		return false
	}
	return true
}
