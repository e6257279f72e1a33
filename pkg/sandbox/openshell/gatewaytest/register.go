//go:build linux

package gatewaytest

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
)

// unary registers a method that answers one message with one.
func unary[F, In, Out any](name string, do func(F, context.Context, *In) (*Out, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(In)
		if err := decode(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) { return do(srv.(F), ctx, in.(*In)) }
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: wire.Path(name)}, handle)
	}}
}

// stream registers a method that answers with a stream.
func stream[F any](name string, both bool, do func(F, grpc.ServerStream) error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: both,
		Handler: func(srv any, s grpc.ServerStream) error { return do(srv.(F), s) }}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
