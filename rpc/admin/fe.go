package admin

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/shards/placement"
)

// FEOptions is what the HTTP side of an FE shows. All fields but Logger are
// needed.
type FEOptions struct {
	Config    *config.Set
	Directory *placement.Directory
	Health    *Health
	Tokens    *Tokens
	Logger    *slog.Logger
}

// FE is the HTTP side of an FE.
type FE struct {
	*server
	FEOptions
}

// NewFE returns the HTTP side of an FE; Serve runs it.
func NewFE(o FEOptions) *FE {
	f := &FE{server: newServer(o.Health, o.Tokens, o.Logger), FEOptions: o}
	f.add(
		route{"GET", "/metrics", "", Open, f.metrics},
		route{"GET", "/api/backends", "", Open, f.backends},
		route{"GET", "/api/tablets", "", Open, f.tablets},
	)
	f.add(configuration(o.Config)...)
	return f
}

// backendJSON is one BE as /api/backends shows it.
type backendJSON struct {
	BackendID      int64  `json:"backend_id"`
	Host           string `json:"host"`
	HTTPPort       int    `json:"http_port"`
	BrpcPort       int    `json:"brpc_port"`
	ComputeGroupID string `json:"compute_group_id"`
	Alive          bool   `json:"alive"`
}

func (s *FE) backends(ctx *fasthttp.RequestCtx) {
	views := s.Directory.Backends()
	list := make([]backendJSON, len(views))
	for i, v := range views {
		list[i] = backendJSON{v.BackendID, v.Host, v.HTTPPort, v.BrpcPort, v.GroupID, v.Alive}
	}
	answer(ctx, list)
}

type holderJSON struct {
	Host           string `json:"host"`
	BrpcPort       int    `json:"brpc_port"`
	ComputeGroupID string `json:"compute_group_id"`
}

type tabletJSON struct {
	TabletID int64        `json:"tablet_id"`
	Holders  []holderJSON `json:"holders"`
}

// maxTabletsShown bounds one question to /api/tablets.
const maxTabletsShown = 10_000

// tablets serves GET /api/tablets?tablet_id=1,2,3: who serves each of them.
func (s *FE) tablets(ctx *fasthttp.RequestCtx) {
	ids, err := tabletIDs(string(ctx.QueryArgs().Peek("tablet_id")))
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	routes := make([]block.Route, len(ids))
	for i, id := range ids {
		routes[i] = block.TabletRoute(id)
	}
	found, err := s.Directory.Lookup(context.Background(), routes)
	if err != nil {
		fail(ctx, fasthttp.StatusServiceUnavailable, "lookup_failed", err.Error())
		return
	}
	list := make([]tabletJSON, len(ids))
	for i, holders := range found {
		list[i] = tabletJSON{TabletID: ids[i], Holders: []holderJSON{}}
		for _, h := range holders {
			list[i].Holders = append(list[i].Holders, holderJSON{h.Addr.Host, h.Addr.Port, h.GroupID})
		}
	}
	answer(ctx, map[string]any{"tablets": list})
}

func tabletIDs(text string) ([]int64, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxTabletsShown {
		return nil, errors.New("tablet_id: want at most " + strconv.Itoa(maxTabletsShown) + " ids")
	}
	ids := make([]int64, len(parts))
	for i, p := range parts {
		id, err := strconv.ParseInt(p, 10, 64)
		if err != nil || id < 0 {
			return nil, errors.New("tablet_id=" + quote(p) + ": want a whole number from 0 to 9223372036854775807")
		}
		ids[i] = id
	}
	return ids, nil
}
