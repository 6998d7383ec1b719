// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// proto is what grpc-go looks up for plain application/grpc.
type bytesAsProto struct{ raw }

func (bytesAsProto) Name() string { return "proto" }

// A grpc-go server, as kubelet's registration and pod resources sockets are.
func goServer(t *testing.T, cancelled chan<- error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(_ any, ss grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(ss)
		var msg []byte
		if err := ss.RecvMsg(&msg); err != nil {
			return err
		}
		switch method {
		case "/go/Echo":
			return ss.SendMsg(&msg)
		case "/go/Many":
			for i := 0; i < 1000; i++ {
				if err := ss.SendMsg(&msg); err != nil {
					return err
				}
			}
			return nil
		case "/go/Fail":
			return status.Error(codes.FailedPrecondition, "nicht bereit: 50%\nspäter")
		case "/go/Never":
			<-ss.Context().Done()
			cancelled <- ss.Context().Err()
			return ss.Context().Err()
		}
		return status.Errorf(codes.Unimplemented, "no %s", method)
	}
	var codec encoding.Codec = bytesAsProto{}
	server := grpc.NewServer(grpc.UnknownServiceHandler(handler), grpc.ForceServerCodec(codec),
		grpc.MaxRecvMsgSize(8<<20))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return path
}

func TestOurClient(t *testing.T) {
	cancelled := make(chan error, 1)
	path := goServer(t, cancelled)
	run := func(want string, args ...string) {
		t.Helper()
		cmd := exec.Command(os.Getenv("SLUICE_INTEROP_CLIENT"), append([]string{path}, args...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if got := strings.TrimRight(string(out), " \n"); err != nil || got != want {
			t.Errorf("%v: %q, %v; not %q", args, got, err, want)
		}
	}
	run("OK 1 0", "/go/Echo", "0")
	run("OK 1 1", "/go/Echo", "1", "5000")
	run("OK 1 4194304", "/go/Echo", "4194304")
	run("RESOURCE_EXHAUSTED 0 0 the message has 5000000 bytes: at most 4194304 are accepted", "/go/Echo", "5000000")
	run("OK 1000 100000000", "/go/Many", "100000")
	run("FAILED_PRECONDITION 0 0 nicht bereit: 50%\nspäter", "/go/Fail", "3")
	run("UNIMPLEMENTED 0 0 no /go/Nothing", "/go/Nothing", "3")
	run("DEADLINE_EXCEEDED 0 0 the deadline has passed", "/go/Never", "3", "100")
	select {
	case <-cancelled:
	case <-time.After(10 * time.Second):
		t.Error("the server was not told that the call is over")
	}
}
