package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

func newNode(t *testing.T) (*node, *mount.FakeMounter) {
	t.Helper()
	mounter := mount.NewFakeMounter(nil)
	return &node{id: "n1", volumes: t.TempDir(), mounter: mounter}, mounter
}

func publishRequest(volume, target string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId:   volume,
		TargetPath: target,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		},
	}
}

func TestPublishAndUnpublishMayBeRepeated(t *testing.T) {
	n, mounter := newNode(t)
	target := filepath.Join(t.TempDir(), "pod", "mount")
	for range 2 {
		if _, err := n.NodePublishVolume(context.Background(), publishRequest("pv-1", target)); err != nil {
			t.Fatal(err)
		}
	}
	mounts, _ := mounter.List()
	if len(mounts) != 1 || mounts[0].Path != target || mounts[0].Device != filepath.Join(n.volumes, "pv-1") {
		t.Fatalf("mounts are %v: want the volume's folder on %s, once", mounts, target)
	}
	for range 2 {
		request := &csi.NodeUnpublishVolumeRequest{VolumeId: "pv-1", TargetPath: target}
		if _, err := n.NodeUnpublishVolume(context.Background(), request); err != nil {
			t.Fatal(err)
		}
	}
	if mounts, _ := mounter.List(); len(mounts) != 0 {
		t.Fatalf("mounts are %v: want none", mounts)
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Fatalf("the target is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(n.volumes, "pv-1")); err != nil {
		t.Fatalf("the volume's data must outlive its mount: %v", err)
	}
}

func TestRefusesWhatIsNoVolume(t *testing.T) {
	n, mounter := newNode(t)
	target := filepath.Join(t.TempDir(), "mount")
	block := publishRequest("pv-1", target)
	block.VolumeCapability = &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
	refused := map[string]*csi.NodePublishVolumeRequest{
		"empty id":        publishRequest("", target),
		"parent folder":   publishRequest("..", target),
		"path":            publishRequest("a/b", target),
		"dot":             publishRequest("a.b", target),
		"no target":       publishRequest("pv-1", ""),
		"relative target": publishRequest("pv-1", "mount"),
		"block device":    block,
	}
	for name, request := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := n.NodePublishVolume(context.Background(), request)
			if status.Code(err) != codes.InvalidArgument {
				t.Fatalf("got %v: want InvalidArgument", err)
			}
		})
	}
	if log := mounter.GetLog(); len(log) != 0 {
		t.Fatalf("mounted all the same: %v", log)
	}
}

// The kubelet's side of a registration, over the real sockets.
func TestRegistersAsAKubeletExpects(t *testing.T) {
	directory := t.TempDir()
	o := options{nodeID: "n1", volumes: filepath.Join(directory, "volumes"), kubeletDir: directory}
	// What a machine that lost power leaves behind.
	if err := os.MkdirAll(filepath.Dir(o.registrationSocket()), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.registrationSocket(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- serve(ctx, o) }()

	deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	info, err := registration.NewRegistrationClient(dial(t, o.registrationSocket())).
		GetInfo(deadline, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if info.Type != "CSIPlugin" || info.Name != driverName || info.Endpoint != o.endpoint() {
		t.Fatalf("registered as %v", info)
	}
	nodeInfo, err := csi.NewNodeClient(dial(t, info.Endpoint)).
		NodeGetInfo(deadline, &csi.NodeGetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil || nodeInfo.NodeId != "n1" {
		t.Fatalf("NodeGetInfo: %v, %v", nodeInfo, err)
	}

	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.registrationSocket()); !os.IsNotExist(err) {
		t.Fatalf("the socket is still there: %v", err)
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}
