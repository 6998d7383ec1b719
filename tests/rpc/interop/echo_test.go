// SPDX-License-Identifier: Apache-2.0

// Package interop talks to Sluice's gRPC server with grpc-go's client, dialling as kubelet does.
package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

// raw passes bytes through, so that the tests see exactly what travels.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}
func (raw) Name() string { return "raw" }

type server struct {
	path string
	cmd  *exec.Cmd
	out  *bufio.Reader
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{path: filepath.Join(t.TempDir(), "s")}
	s.cmd = exec.Command(os.Getenv("SLUICE_INTEROP_SERVER"), s.path)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if line, err := s.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	return s
}

func unixDialer(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", addr)
}

func (s *server) dial(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(unixDialer),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+s.path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func invoke(conn *grpc.ClientConn, method string, in []byte, opts ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return invokeCtx(ctx, conn, method, in, opts...)
}

func invokeCtx(ctx context.Context, conn *grpc.ClientConn, method string, in []byte, opts ...grpc.CallOption) ([]byte, error) {
	var out []byte
	opts = append(opts, grpc.ForceCodec(raw{}))
	err := conn.Invoke(ctx, "/test.Echo/"+method, &in, &out, opts...)
	return out, err
}

func stream(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string, in []byte) grpc.ClientStream {
	t.Helper()
	cs, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/"+method,
		grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20))
	if err == nil {
		err = cs.SendMsg(&in)
	}
	if err == nil {
		err = cs.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func shape(count, size uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, count), size)
}

func drain(t *testing.T, cs grpc.ClientStream, count, size int) {
	t.Helper()
	for i := 0; ; i++ {
		var msg []byte
		err := cs.RecvMsg(&msg)
		if err == io.EOF {
			if i != count {
				t.Errorf("%d messages of %d", i, count)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(msg) != size || (size >= 4 && binary.BigEndian.Uint32(msg) != uint32(i)) {
			t.Fatalf("message %d: %d bytes", i, len(msg))
		}
	}
}

func wantCode(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%v instead of %v", err, code)
	}
}

// The server's own view, until it is what we wait for.
func waitState(t *testing.T, conn *grpc.ClientConn, want string) {
	t.Helper()
	var got []byte
	for i := 0; i < 500; i++ {
		var err error
		if got, err = invoke(conn, "State", nil); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(got), want) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the server says %q, not %q", got, want)
}

func TestDialStyles(t *testing.T) {
	s := startServer(t)
	for name, opts := range map[string][]grpc.DialOption{
		"device plugin, localhost":  {grpc.WithAuthority("localhost")},
		"plugin watcher, encoded":   {},
		"plugin watcher, 1.26-1.28": {grpc.WithAuthority(s.path)},
	} {
		out, err := invoke(s.dial(t, opts...), "Unary", []byte("x"))
		if err != nil || string(out) != "x" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	conn, err := grpc.NewClient("unix://"+s.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := invoke(conn, "Unary", nil); err != nil {
		t.Errorf("unix://: %v", err)
	}
}

func TestUnary(t *testing.T) {
	conn := startServer(t).dial(t)
	for _, size := range []int{0, 1, 16384, 65535, 1 << 20, 4 << 20} {
		out, err := invoke(conn, "Unary", bytes.Repeat([]byte("a"), size), grpc.MaxCallRecvMsgSize(8<<20))
		if err != nil || len(out) != size {
			t.Errorf("%d bytes: %d, %v", size, len(out), err)
		}
	}
	_, err := invoke(conn, "Unary", make([]byte, 4<<20+1))
	wantCode(t, err, codes.ResourceExhausted)
	_, err = invoke(conn, "Unary", make([]byte, 40<<20))
	wantCode(t, err, codes.ResourceExhausted)
	_, err = invoke(conn, "Nothing", nil)
	wantCode(t, err, codes.Unimplemented)
	_, err = invoke(conn, "Unary", bytes.Repeat([]byte("a"), 1000), grpc.UseCompressor(gzip.Name))
	wantCode(t, err, codes.Unimplemented)
	for code := codes.Code(1); code <= 16; code++ {
		text := "grün: 100%\nzweite Zeile"
		_, err = invoke(conn, "Fail", append([]byte{byte(code)}, text...))
		wantCode(t, err, code)
		if got := status.Convert(err).Message(); got != text {
			t.Errorf("message %q", got)
		}
	}
	if _, err = invoke(conn, "Unary", nil); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestStreams(t *testing.T) {
	conn := startServer(t).dial(t)
	for _, c := range [][2]int{{0, 0}, {1, 0}, {5000, 4}, {300, 100000}, {5, 20 << 20}} {
		drain(t, stream(context.Background(), t, conn, "Stream", shape(uint32(c[0]), uint32(c[1]))), c[0], c[1])
	}
}

func TestDeadline(t *testing.T) {
	conn := startServer(t).dial(t)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := invokeCtx(ctx, conn, "Never", nil)
	wantCode(t, err, codes.DeadlineExceeded)
	ctx, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	cs := stream(ctx, t, conn, "Hello", []byte("hi"))
	var msg []byte
	if err := cs.RecvMsg(&msg); err != nil || string(msg) != "hi" {
		t.Errorf("%q, %v", msg, err)
	}
	wantCode(t, cs.RecvMsg(&msg), codes.DeadlineExceeded)
	for i := 0; i < 500; i++ { // ended by the client's reset or by the server's own clock: whichever came first
		out, err := invoke(conn, "State", nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "open 0") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("calls past their deadline are still open on the server")
}

func TestCancel(t *testing.T) {
	conn := startServer(t).dial(t)
	ctx, cancel := context.WithCancel(context.Background())
	for i := 0; i < 3; i++ {
		cs := stream(ctx, t, conn, "Hello", []byte("hi"))
		var msg []byte
		if err := cs.RecvMsg(&msg); err != nil {
			t.Fatal(err)
		}
	}
	blocked := stream(ctx, t, conn, "Stream", shape(1000, 100000))
	waitState(t, conn, "cancelled 0 deadline 0 open 4")
	cancel()
	var msg []byte
	for i := 0; i < 1000; i++ {
		if err := blocked.RecvMsg(&msg); err != nil {
			wantCode(t, err, codes.Canceled)
			break
		}
	}
	waitState(t, conn, "cancelled 4 deadline 0 open 0")
}

func TestConcurrent(t *testing.T) {
	conn := startServer(t).dial(t)
	var wg sync.WaitGroup
	for i := 0; i < 1000; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			want := fmt.Sprintf("call %d", i)
			if out, err := invoke(conn, "Unary", []byte(want)); err != nil || string(out) != want {
				t.Errorf("%q: %q, %v", want, out, err)
			}
		}()
	}
	wg.Wait()
}

// A reader that sleeps holds up neither its own connection nor others, and costs the server one queue.
func TestSlowReader(t *testing.T) {
	s := startServer(t)
	conn, other := s.dial(t), s.dial(t)
	slow := stream(context.Background(), t, conn, "Stream", shape(200, 500000))
	for i := 0; i < 200; i++ {
		for _, c := range []*grpc.ClientConn{conn, other} {
			if _, err := invoke(c, "Unary", make([]byte, 10000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := invoke(conn, "State", nil)
	if err != nil {
		t.Fatal(err)
	}
	var cancelled, deadline, open, most int
	if _, err := fmt.Sscanf(string(out), "cancelled %d deadline %d open %d most %d", &cancelled, &deadline, &open, &most); err != nil {
		t.Fatal(err)
	}
	if open != 1 || most > 1<<20 {
		t.Errorf("%s", out)
	}
	drain(t, slow, 200, 500000)
}

// A stop while a stream is under way: it ends well, the client hears GOAWAY, the process ends.
func TestGracefulStop(t *testing.T) {
	s := startServer(t)
	conn := s.dial(t)
	cs := stream(context.Background(), t, conn, "Stream", shape(100, 500000))
	hello := stream(context.Background(), t, conn, "Hello", []byte("hi"))
	waitState(t, conn, "cancelled 0 deadline 0 open 2")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var msg []byte
	if err := hello.RecvMsg(&msg); err != nil {
		t.Fatal(err)
	}
	wantCode(t, hello.RecvMsg(&msg), codes.Unavailable)
	drain(t, cs, 100, 500000)
	if line, err := s.out.ReadString('\n'); line != "stopped\n" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := os.Stat(s.path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}
