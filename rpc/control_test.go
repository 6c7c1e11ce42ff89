package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/transport"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/rpc/kitex_gen/headstart/backend"
	"headstart/shards/placement"
)

// fakeControl is a BE that notes what it is told.
type fakeControl struct {
	mu  sync.Mutex
	did orders
	err error
}

// orders are what a BE was told.
type orders struct {
	warmed  []placement.WarmCall
	listed  placement.ListCall
	set     map[string]string
	persist bool
	// forgotten are the objects of all Forgets.
	forgotten []block.Object
}

// note takes an order down and returns how it ends.
func (c *fakeControl) note(order func(did *orders)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	order(&c.did)
	return c.err
}

// told returns what the BE was told so far.
func (c *fakeControl) told() (did orders) {
	c.note(func(all *orders) { did = *all })
	return did
}

// fail makes orders fail from now on.
func (c *fakeControl) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *fakeControl) Warm(_ context.Context, call placement.WarmCall) (progress []placement.WarmProgress, _ error) {
	err := c.note(func(did *orders) { did.warmed = append(did.warmed, call) })
	for _, b := range call.Start {
		progress = append(progress, placement.WarmProgress{ID: b.ID, State: placement.WarmQueued})
	}
	for _, id := range call.Ask {
		progress = append(progress, placement.WarmProgress{ID: id, State: placement.WarmDone, Blocks: 3, Bytes: 1 << 40, Err: "one block"})
	}
	return progress, err
}

func (c *fakeControl) List(_ context.Context, call placement.ListCall) (placement.ListReply, error) {
	err := c.note(func(did *orders) { did.listed = call })
	return placement.ListReply{Objects: []placement.WarmObject{warmObject("a")}, More: true}, err
}

func (c *fakeControl) Hot(_ context.Context, tablets []uint64) (placement.HotReply, error) {
	reply := placement.HotReply{BlockSize: 1 << 20}
	for _, id := range tablets {
		reply.Objects = append(reply.Objects, placement.HotObject{
			Tablet: id, WarmObject: warmObject(fmt.Sprint(id)), Blocks: []placement.BlockRange{{First: 0, Count: 3}, {First: 1 << 40, Count: 1}},
		})
	}
	return reply, c.note(func(*orders) {})
}

func (c *fakeControl) Forget(_ context.Context, objects []block.Object) error {
	return c.note(func(did *orders) { did.forgotten = append(did.forgotten, objects...) })
}

func (c *fakeControl) ShowConfig(context.Context) ([]placement.ConfigItem, error) {
	return []placement.ConfigItem{{Key: "a", Value: "1", Type: "int", Mutable: true}, {Key: "b", Type: "string"}}, c.note(func(*orders) {})
}

func (c *fakeControl) SetConfig(_ context.Context, values map[string]string, persist bool) error {
	return c.note(func(did *orders) { did.set, did.persist = values, persist })
}

func warmObject(key string) placement.WarmObject {
	return placement.WarmObject{
		Object: block.Object{Store: "s3", Bucket: "b", Key: key},
		Meta:   block.Meta{Size: 5, Version: "v", ETag: "e", Modified: time.Unix(1, 2), ContentType: "text/plain"},
	}
}

func startBackend(t *testing.T, token string) (*fakeControl, block.Addr, *BackendClient) {
	t.Helper()
	control := &fakeControl{}
	_, addr := startServer(t, ServerOptions{Identity: identity("be", "c1", token), Control: control}, whole(0))
	c, err := NewBackendClient(BackendClientOptions{Identity: identity("fe", "c1", token)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return control, addr, c
}

func TestS63_ConfigurationTravels(t *testing.T) {
	control, addr, c := startBackend(t, "secret")
	items, err := c.ShowConfig(inTime(t), addr)
	want, _ := control.ShowConfig(t.Context())
	if err != nil || !reflect.DeepEqual(items, want) {
		t.Errorf("%+v, %v", items, err)
	}
	if err := c.SetConfig(inTime(t), addr, map[string]string{"a": "2", "b": ""}, true); err != nil {
		t.Error(err)
	}
	if did := control.told(); !reflect.DeepEqual(did.set, map[string]string{"a": "2", "b": ""}) || !did.persist {
		t.Errorf("%v, persist %t", did.set, did.persist)
	}
	control.fail(fmt.Errorf("%w: no such key", block.ErrInvalid))
	if err := c.SetConfig(inTime(t), addr, nil, false); !errors.Is(err, block.ErrInvalid) || !strings.Contains(err.Error(), "no such key") || !strings.Contains(err.Error(), addr.String()) {
		t.Error(err)
	}
}

func TestS65_OrdersNeedTheClusterToken(t *testing.T) {
	control, addr, _ := startBackend(t, "secret")
	for name, id := range map[string]*Identity{
		"no token": identity("fe", "c1", ""), "wrong token": identity("fe", "c1", "guess"), "other cluster": identity("fe", "c2", "secret"),
	} {
		c, err := NewBackendClient(BackendClientOptions{Identity: id})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		calls := map[string]error{"SetConfig": c.SetConfig(inTime(t), addr, map[string]string{"a": "2"}, false)}
		_, calls["ShowConfig"] = c.ShowConfig(inTime(t), addr)
		_, calls["Warm"] = c.Warm(inTime(t), addr, placement.WarmCall{Ask: []string{"x"}})
		_, calls["List"] = c.List(inTime(t), addr, placement.ListCall{})
		for method, err := range calls {
			if !errors.Is(err, block.ErrRefused) {
				t.Errorf("%s with %s: %v", method, name, err)
			}
		}
	}
	if did := control.told(); did.set != nil || did.warmed != nil || did.listed != (placement.ListCall{}) {
		t.Error("a stranger's order was carried out")
	}
}

func TestS85_WarmTravelsWholeAndInPieces(t *testing.T) {
	control, addr, c := startBackend(t, "")
	call := placement.WarmCall{Ask: []string{"old"}, Drop: []string{"older"}}
	source := placement.Holder{Addr: block.Addr{Host: "10.0.0.1", Port: 8060}, GroupID: "cg", Location: "default"}
	for i := range 16 {
		batch := placement.WarmBatch{ID: fmt.Sprint("b", i), Balance: i%2 == 0, Objects: []placement.WarmObject{warmObject("k")}}
		for tablet := range uint64(64) {
			group := placement.WarmGroup{Sources: []placement.Holder{source, source, source}, Tablets: []uint64{tablet, 1<<63 + tablet}}
			batch.Groups = append(batch.Groups, group)
		}
		call.Start = append(call.Start, batch)
	}
	progress, err := c.Warm(inTime(t), addr, call)
	if err != nil {
		t.Fatal(err)
	}
	var got placement.WarmCall
	parts := control.told().warmed
	for _, part := range parts {
		got.Start, got.Ask, got.Drop = append(got.Start, part.Start...), append(got.Ask, part.Ask...), append(got.Drop, part.Drop...)
	}
	if !reflect.DeepEqual(got, call) {
		t.Error("what arrives is not what was sent")
	}
	if len(parts) < 2 {
		t.Errorf("%d requests for 16 long batches", len(parts))
	}
	if len(progress) != 17 || progress[16] != (placement.WarmProgress{ID: "old", State: placement.WarmDone, Blocks: 3, Bytes: 1 << 40, Err: "one block"}) {
		t.Errorf("%+v", progress)
	}
	big := placement.WarmCall{Start: []placement.WarmBatch{{ID: "x", Objects: []placement.WarmObject{warmObject(strings.Repeat("k", maxRequest))}}}}
	if _, err := c.Warm(inTime(t), addr, big); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("a batch that no request can carry: %v", err)
	}
}

func TestS88_ListAndHotTravel(t *testing.T) {
	control, addr, c := startBackend(t, "")
	page, err := c.List(inTime(t), addr, placement.ListCall{Prefix: block.Object{Bucket: "b", Key: "p"}, After: "p1", Max: 7})
	if err != nil || !page.More || !reflect.DeepEqual(page.Objects, []placement.WarmObject{warmObject("a")}) {
		t.Errorf("%+v, %v", page, err)
	}
	if want := (placement.ListCall{Prefix: block.Object{Bucket: "b", Key: "p"}, After: "p1", Max: 7}); control.told().listed != want {
		t.Errorf("%+v", control.told().listed)
	}
	var m memory
	peers, err := NewClient(ClientOptions{Identity: identity("be2", "c1", ""), Alloc: m.alloc})
	if err != nil {
		t.Fatal(err)
	}
	defer peers.Close()
	hot, err := peers.Hot(inTime(t), addr, []uint64{1, 1 << 63})
	want, _ := control.Hot(t.Context(), []uint64{1, 1 << 63})
	if err != nil || !reflect.DeepEqual(hot, want) {
		t.Errorf("%+v, %v", hot, err)
	}
	if _, err := peers.Hot(inTime(t), addr, make([]uint64, maxHotTablets+1)); !errors.Is(err, block.ErrInvalid) {
		t.Error(err)
	}
}

func TestANodeWithoutControlTakesNoOrders(t *testing.T) {
	_, addr := startServer(t, ServerOptions{Identity: identity("be", "c1", "")}, whole(0))
	c, err := NewBackendClient(BackendClientOptions{Identity: identity("fe", "c1", "")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ShowConfig(inTime(t), addr); !errors.Is(err, block.ErrInvalid) {
		t.Error(err)
	}
}

// A client that knows nothing but the IDL may give orders too.
func TestAGeneratedBackendClientIsServed(t *testing.T) {
	control, addr, _ := startBackend(t, "secret")
	c, err := backend.NewClient("Backend", client.WithHostPorts(addr.String()), client.WithTransportProtocol(transport.Framed))
	if err != nil {
		t.Fatal(err)
	}
	base := identity("client", "c1", "secret").now.Load().base(request)
	rep, err := c.SetConfig(inTime(t), &headstart.SetConfigRequest{Base: base, Values: map[string]string{"a": "3"}})
	if err != nil || rep.Failure != nil || control.told().set["a"] != "3" {
		t.Errorf("%v, %v, %v", rep, err, control.told().set)
	}
}

// TestForget: objects arrive whole, however many they are.
func TestForget(t *testing.T) {
	control, addr, _ := startBackend(t, "secret")
	c, err := NewClient(ClientOptions{Identity: identity("be-2", "c1", "secret"), Alloc: (&memory{}).alloc})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var objects []block.Object
	for i := range 1000 {
		objects = append(objects, block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("%s/%d", strings.Repeat("k", 500), i)})
	}
	err = c.Forget(t.Context(), addr, objects)
	if got := control.told().forgotten; err != nil || !reflect.DeepEqual(got, objects) {
		t.Errorf("%d of %d objects, %v", len(got), len(objects), err)
	}
	stranger, err := NewClient(ClientOptions{Identity: identity("be-3", "c1", "wrong"), Alloc: (&memory{}).alloc})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if err := stranger.Forget(t.Context(), addr, objects[:1]); !errors.Is(err, block.ErrRefused) {
		t.Errorf("a stranger: %v", err)
	}
}
