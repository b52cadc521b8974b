// lab-csi is the CSI node driver of the test lab: a volume is a folder below
// --volumes, which all machines of the lab share, and publishing it is a bind
// mount. It runs on each machine beside the kubelet, which mounts a CSI volume
// only with such a driver; attaching is done by the lab itself.
//
// It is written in Go because the types of CSI and of the kubelet's plugin
// registration are published as Go packages, and nothing else of Kubernetes'
// own would prove that we speak them right. It is a program of its own, not
// one of the multi-call binary, since every machine runs one: this takes a
// tenth of the memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

// maxSocketPath is what sockaddr_un holds, less the closing zero byte.
const maxSocketPath = 107

// options is what the command line says.
type options struct {
	nodeID     string
	volumes    string
	kubeletDir string
}

// endpoint is where the kubelet sends its CSI calls.
func (o options) endpoint() string {
	return filepath.Join(o.kubeletDir, "plugins", driverName, "csi.sock")
}

// registrationSocket is where the kubelet looks for drivers.
func (o options) registrationSocket() string {
	return filepath.Join(o.kubeletDir, "plugins_registry", driverName+"-reg.sock")
}

func parseOptions(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("lab-csi", flag.ExitOnError)
	flags.StringVar(&o.nodeID, "node-id", "", "name of this machine, as the kubelet has it (required)")
	flags.StringVar(&o.volumes, "volumes", "", "folder that holds one folder per volume (required, absolute)")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's --root-dir (absolute)")
	_ = flags.Parse(arguments) // ends the program itself, see ExitOnError

	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: lab-csi takes flags only", flags.Arg(0))
	case o.nodeID == "":
		return o, errors.New(`--node-id is "": give the name of this machine's Node`)
	case !filepath.IsAbs(o.volumes):
		return o, fmt.Errorf("--volumes is %q: give an absolute path", o.volumes)
	case !filepath.IsAbs(o.kubeletDir):
		return o, fmt.Errorf("--kubelet-dir is %q: give an absolute path", o.kubeletDir)
	case max(len(o.endpoint()), len(o.registrationSocket())) > maxSocketPath:
		return o, fmt.Errorf("--kubelet-dir is %q: too long, the sockets below it may have %d bytes", o.kubeletDir, maxSocketPath)
	}
	return o, nil
}

func main() {
	log.SetPrefix("lab-csi: ")
	log.SetFlags(log.Ldate | log.Ltime | log.Lmicroseconds | log.Lmsgprefix)
	o, err := parseOptions(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab-csi:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, o); err != nil {
		log.Fatal(err)
	}
}

// serve answers the kubelet until ctx ends or a server fails.
func serve(ctx context.Context, o options) error {
	driver := grpc.NewServer(grpc.UnaryInterceptor(logCall))
	csi.RegisterIdentityServer(driver, &identity{})
	csi.RegisterNodeServer(driver, &node{
		id:      o.nodeID,
		volumes: o.volumes,
		// Not mount.New: it would start mount(8) in a systemd scope of the
		// host's when it finds one, outside the machine's cgroup.
		mounter: mount.NewWithoutSystemd(""),
	})
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, &pluginRegistration{endpoint: o.endpoint()})

	// The driver first: as soon as the other socket is there, the kubelet
	// calls the driver.
	driverSocket, err := listen(o.endpoint())
	if err != nil {
		return err
	}
	registrationSocket, err := listen(o.registrationSocket())
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- driver.Serve(driverSocket) }()
	go func() { failed <- registrar.Serve(registrationSocket) }()
	log.Printf("node %s serves %s from %s", o.nodeID, driverName, o.volumes)

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		// Stop removes the sockets; the kubelet forgets the driver then.
		registrar.Stop()
		driver.GracefulStop()
		return nil
	}
}

// listen makes a socket anew: a machine that lost power has left its old one.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// logCall records the calls that fail and those that change something.
func logCall(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	response, err := next(ctx, request)
	switch request := request.(type) {
	case *csi.NodePublishVolumeRequest:
		log.Printf("publish %s on %s: %v", request.GetVolumeId(), request.GetTargetPath(), status.Code(err))
	case *csi.NodeUnpublishVolumeRequest:
		log.Printf("unpublish %s from %s: %v", request.GetVolumeId(), request.GetTargetPath(), status.Code(err))
	}
	if err != nil {
		log.Printf("%s: %v", call.FullMethod, err)
	}
	return response, err
}
