package rpc

import (
	"context"
	"maps"

	"github.com/cloudwego/kitex/pkg/serviceinfo"

	"headstart/rpc/kitex_gen/headstart"
)

// method describes one method to Kitex: serve is called with the handler of
// the service, the arguments and the result to fill.
func method[H, A, R any](serve func(h H, ctx context.Context, args *A, result *R) error) serviceinfo.MethodInfo {
	return serviceinfo.NewMethodInfo(
		func(ctx context.Context, handler, args, result any) error {
			return serve(handler.(H), ctx, args.(*A), result.(*R))
		},
		func() any { return new(A) },
		func() any { return new(R) },
		false,
		serviceinfo.WithStreamingMode(serviceinfo.StreamingNone),
	)
}

// orEmpty takes a struct that is missing from a message for an empty one.
func orEmpty[T any](p *T) *T {
	if p == nil {
		p = new(T)
	}
	return p
}

func service(name string, handler any, methods map[string]serviceinfo.MethodInfo) *serviceinfo.ServiceInfo {
	return &serviceinfo.ServiceInfo{
		ServiceName:  name,
		HandlerType:  handler,
		PayloadCodec: serviceinfo.Thrift,
		Methods:      methods,
		Extra:        map[string]any{serviceinfo.PackageName: "headstart"},
	}
}

// peerService is the services Peer and Backend of the IDL: frames don't say which
// of them they mean. The methods that carry a payload have our codec.
func peerService() *serviceinfo.ServiceInfo {
	methods := backendMethods()
	maps.Copy(methods, map[string]serviceinfo.MethodInfo{
		methodFetch: method((*Server).fetchBlocks),
		methodCancel: method(func(s *Server, ctx context.Context, a *headstart.PeerCancelArgs, r *headstart.PeerCancelResult) error {
			r.Success = s.cancel(ctx, orEmpty(a.Req))
			return nil
		}),
		methodStat: method(func(s *Server, ctx context.Context, a *headstart.PeerStatArgs, r *headstart.PeerStatResult) error {
			r.Success = s.stat(ctx, orEmpty(a.Req))
			return nil
		}),
		methodRead: method((*Server).read),
	})
	return service("Peer", (*Server)(nil), methods)
}

// directoryService is the service Directory of the IDL.
func directoryService() *serviceinfo.ServiceInfo {
	return service("Directory", (*DirectoryServer)(nil), map[string]serviceinfo.MethodInfo{
		methodHeartbeat: method(func(s *DirectoryServer, ctx context.Context, a *headstart.DirectoryHeartbeatArgs, r *headstart.DirectoryHeartbeatResult) error {
			r.Success = s.heartbeat(ctx, orEmpty(a.Req))
			return nil
		}),
		methodLookup: method(func(s *DirectoryServer, ctx context.Context, a *headstart.DirectoryLookupArgs, r *headstart.DirectoryLookupResult) error {
			r.Success = s.lookup(ctx, orEmpty(a.Req))
			return nil
		}),
	})
}
