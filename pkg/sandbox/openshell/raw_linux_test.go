package openshell_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
)

// TestHalfClose shows why the client never ends the input of a command on
// 0.0.x: the gateway ends the command with it, and its output is lost.
func TestHalfClose(t *testing.T) {
	kerneltest.Long(t)
	t.Run("double", func(t *testing.T) {
		g, c := connected(t, gatewaytest.Options{})
		halfClose(t, g.Endpoint(), world{client: c, image: gatewaytest.Image(t), uid: ordinary(), node: newNode()})
	})
	t.Run("real", func(t *testing.T) {
		endpoint := os.Getenv("MOJOUP_TEST_GATEWAY")
		if endpoint == "" {
			t.Skip("wanted MOJOUP_TEST_GATEWAY, found none: there is no real gateway here")
		}
		c, err := openshell.Connect(bounded(t), at(t, endpoint))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		halfClose(t, endpoint, world{client: c, image: os.Getenv("MOJOUP_TEST_GATEWAY_IMAGE"), uid: 1000, node: newNode()})
	})
}

func halfClose(t *testing.T, endpoint string, w world) {
	s := w.up(t, w.request(t))
	w.sh(t, s.Ref, "true")
	cc, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(endpoint, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	stream, err := cc.NewStream(bounded(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, wire.Path(wire.Exec))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*v00.ExecSandboxInput{
		{Payload: &v00.ExecSandboxInput_Start{Start: &v00.ExecSandboxRequest{SandboxId: s.ID, Command: []string{"/bin/sh", "-c", "cat; sleep 1; echo late"}}}},
		{Payload: &v00.ExecSandboxInput_Stdin{Stdin: []byte("input\n")}},
	} {
		if err := stream.SendMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for {
		e := &v00.ExecSandboxEvent{}
		if err = stream.RecvMsg(e); err != nil {
			break
		}
		got.Write(e.GetStdout().GetData())
		if e.GetExit() != nil {
			t.Errorf("it ended with %d", e.GetExit().GetExitCode())
		}
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "exec relay closed before the command reported an exit status") || strings.Contains(got.String(), "late") {
		t.Errorf("%v, %q", err, got.String())
	}
}
