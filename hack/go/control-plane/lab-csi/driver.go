package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

const (
	driverName    = "lab.csi.coroner.dev"
	driverVersion = "1.0.0"
	csiVersion    = "1.0.0"
)

// volumeID is one plain folder name: no slash and no dot, so that it can never
// lead out of the folder of volumes.
var volumeID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// pluginRegistration answers the kubelet, which asks who we are when
// it finds our socket.
type pluginRegistration struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r *pluginRegistration) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              driverName,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{csiVersion},
	}, nil
}

func (r *pluginRegistration) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		log.Print("registered with the kubelet")
	} else {
		// Not the end: the kubelet tries again by itself.
		log.Printf("the kubelet refused the registration: %s", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// identity is the CSI Identity service.
type identity struct {
	csi.UnimplementedIdentityServer
}

func (*identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: driverVersion}, nil
}

func (*identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (*identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// node is the CSI Node service. It stages nothing and measures nothing: it
// names no capabilities, so the kubelet calls Publish and Unpublish alone.
type node struct {
	csi.UnimplementedNodeServer
	id      string
	volumes string
	mounter mount.Interface
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.id}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (n *node) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := check(request.GetVolumeId(), request.GetTargetPath()); err != nil {
		return nil, err
	}
	if request.GetVolumeCapability().GetMount() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_capability: only mounted file systems are served")
	}
	if err := n.publish(request.GetVolumeId(), request.GetTargetPath(), request.GetReadonly()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publish mounts the volume's folder on target, unless that is done already.
func (n *node) publish(volume, target string, readonly bool) error {
	source := filepath.Join(n.volumes, volume)
	if err := os.MkdirAll(source, 0o777); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	mounted, err := n.mounter.IsMountPoint(target)
	if err != nil || mounted {
		return err
	}
	options := []string{"bind"}
	if readonly {
		options = append(options, "ro")
	}
	return n.mounter.Mount(source, target, "", options)
}

func (n *node) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := check(request.GetVolumeId(), request.GetTargetPath()); err != nil {
		return nil, err
	}
	// The full check, since a bind mount within one file system has the same
	// device number as its parent folder. No target at all is no error.
	if err := mount.CleanupMountPoint(request.GetTargetPath(), n.mounter, true); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// check refuses what could make us touch a path that is no volume's.
func check(volume, target string) error {
	if !volumeID.MatchString(volume) {
		return status.Errorf(codes.InvalidArgument, "volume_id is %q: give 1 to 128 letters, digits, - or _", volume)
	}
	if !filepath.IsAbs(target) {
		return status.Errorf(codes.InvalidArgument, "target_path is %q: give an absolute path", target)
	}
	return nil
}
