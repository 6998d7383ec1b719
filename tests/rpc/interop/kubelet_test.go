// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet's own stubs against our server.
func TestKubeletStubs(t *testing.T) {
	s := startServer(t)
	conn := s.dial(t, grpc.WithAuthority("localhost"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	plugin := deviceplugin.NewDevicePluginClient(conn)
	watch, err := plugin.ListAndWatch(ctx, &deviceplugin.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.Devices); n != 20000 || list.Devices[19999].ID != "GPU-00000000-0000-0000-0000-000000000000::19999" ||
		list.Devices[7].Health != "Healthy" || list.Devices[7].Topology.Nodes[0].ID != 1 {
		t.Errorf("%d devices, the last %v", n, list.Devices[n-1])
	}
	answer, err := plugin.Allocate(ctx, &deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: []string{"a", "b"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c := answer.ContainerResponses[0]
	if c.Envs["DEVICE"] != "a" || !c.Mounts[0].ReadOnly || c.CdiDevices[0].Name != "example.com/gpu=0" {
		t.Errorf("%v", c)
	}
	_, err = plugin.Allocate(ctx, &deviceplugin.AllocateRequest{})
	wantCode(t, err, codes.InvalidArgument)
	_, err = plugin.PreStartContainer(ctx, &deviceplugin.PreStartContainerRequest{})
	wantCode(t, err, codes.Unimplemented)

	info, err := registration.NewRegistrationClient(s.dial(t)).GetInfo(ctx, &registration.InfoRequest{})
	if err != nil || info.Type != "DRAPlugin" || len(info.SupportedVersions) != 2 {
		t.Errorf("%v, %v", info, err)
	}

	prepared, err := dra.NewDRAPluginClient(conn).NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{
		Claims: []*dra.Claim{{Uid: "one"}, {Uid: "two"}}})
	if err != nil {
		t.Fatal(err)
	}
	if one := prepared.Claims["one"]; len(one.GetDevices()) != 1 || one.Devices[0].GetShareId() != "share" {
		t.Errorf("%v", one)
	}
	if prepared.Claims["two"].GetError() != "odd" || len(prepared.Claims) != 2 {
		t.Errorf("%v", prepared)
	}
	_, err = drabeta.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drabeta.NodePrepareResourcesRequest{})
	wantCode(t, err, codes.Unimplemented)
	w, err := health.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	wantCode(t, err, codes.Unimplemented)
}

func compare(t *testing.T, theirs, ours protoreflect.MessageDescriptors, subset bool) {
	for i := 0; i < theirs.Len(); i++ {
		a := theirs.Get(i)
		b := ours.ByName(a.Name())
		if b == nil {
			t.Errorf("no message %s", a.FullName())
			continue
		}
		for k := 0; k < a.Fields().Len(); k++ {
			f := a.Fields().Get(k)
			g := b.Fields().ByNumber(f.Number())
			if g == nil {
				t.Errorf("%s: no field %d (%s)", a.FullName(), f.Number(), f.Name())
				continue
			}
			if f.Name() != g.Name() || f.Kind() != g.Kind() || f.Cardinality() != g.Cardinality() || f.IsMap() != g.IsMap() {
				t.Errorf("%s: %v instead of %v", a.FullName(), g, f)
			}
			if f.Message() != nil && f.Message().Name() != g.Message().Name() {
				t.Errorf("%s: a %s", f.FullName(), g.Message().Name())
			}
		}
		if !subset && a.Fields().Len() < b.Fields().Len() {
			t.Errorf("%s: we have fields the protocol has not", b.FullName())
		}
		compare(t, a.Messages(), b.Messages(), subset)
	}
}

// Our .proto files say what kubelet's say: every message, field, number and type.
func TestProtosAreKubelets(t *testing.T) {
	data, err := os.ReadFile(os.Getenv("SLUICE_INTEROP_PROTOS"))
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		theirs protoreflect.FileDescriptor
		ours   string
		subset bool
	}{
		{(&deviceplugin.Device{}).ProtoReflect().Descriptor().ParentFile(), "deviceplugin.proto", false},
		{(&registration.PluginInfo{}).ProtoReflect().Descriptor().ParentFile(), "pluginregistration.proto", false},
		{(&dra.Claim{}).ProtoReflect().Descriptor().ParentFile(), "dra.proto", false},
		{(&drabeta.Claim{}).ProtoReflect().Descriptor().ParentFile(), "dra.proto", true},
		{(&health.DeviceHealth{}).ProtoReflect().Descriptor().ParentFile(), "drahealth.proto", false},
		{(&podresources.PodResources{}).ProtoReflect().Descriptor().ParentFile(), "podresources.proto", false},
	} {
		ours, err := files.FindFileByPath(c.ours)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, c.theirs.Messages(), ours.Messages(), c.subset)
		if c.theirs.Messages().Len() == 0 {
			t.Errorf("%s: nothing to compare with", c.ours)
		}
	}
}
