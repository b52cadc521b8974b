# shellcheck shell=bash
# The four programs of the control plane: their flags, and how to tell that one
# is ready. To be sourced after processes.sh.
#
# The caller sets $programs, $dir, $pki, $kubeconfigs, $address, $port,
# $advertise, $audit_log and extra, the array of PROGRAM=FLAG.
# shellcheck disable=SC2034,SC2154  # set here and used there, and the other way round

servers=(etcd kube-apiserver kube-controller-manager kube-scheduler)
service_range=10.96.0.0/16
service_address=10.96.0.1 # of the Service "kubernetes": the first of the range

# start_server NAME: does not wait until it is ready.
start_server() {
  local name=$1 flags=() pair
  "flags_of_$name"
  for pair in "${extra[@]}"; do
    [ "${pair%%=*}" != "$name" ] || flags+=("${pair#*=}")
  done
  process_start "$name" "$programs/$name" "${flags[@]}"
}

flags_of_etcd() {
  local client=https://127.0.0.1:$((port + 1)) peer=http://127.0.0.1:$((port + 2))
  # No fsync: the state is thrown away, and a test's disk is somebody else's too.
  flags=(--name=lab --data-dir="$dir/etcd" --unsafe-no-fsync --log-level=warn
    --enable-grpc-gateway=false # it would call etcd with the server's certificate
    --listen-client-urls="$client" --advertise-client-urls="$client"
    --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="lab=$peer"
    --cert-file="$pki/loopback.crt" --key-file="$pki/loopback.key"
    --client-cert-auth --trusted-ca-file="$pki/ca.crt")
}

flags_of_kube-apiserver() {
  # shellcheck disable=SC2054  # the comma is part of a value
  flags=(--bind-address="$address" --secure-port="$port" --advertise-address="$advertise"
    --external-hostname="$advertise"
    --etcd-servers="https://127.0.0.1:$((port + 1))" --etcd-cafile="$pki/ca.crt"
    --etcd-certfile="$pki/etcd-client.crt" --etcd-keyfile="$pki/etcd-client.key"
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key"
    --client-ca-file="$pki/ca.crt"
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key"
    --kubelet-preferred-address-types=InternalIP
    # For extension API servers. Without it two programs complain every few seconds.
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group
    --requestheader-extra-headers-prefix=X-Remote-Extra-
    --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key"
    --service-account-issuer=https://kubernetes.default.svc
    --service-account-key-file="$pki/service-account.pub"
    --service-account-signing-key-file="$pki/service-account.key"
    --service-cluster-ip-range="$service_range"
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
    --allow-privileged=true --profiling=false
    # By default it lets watches run on for up to a minute after SIGTERM.
    --shutdown-watch-termination-grace-period=1s
    # There is no kube-proxy, so webhooks have to be called by their pods' addresses.
    --enable-aggregator-routing=true)
  # Kubernetes refuses Endpoints on loopback, and would say so every 10 s.
  [[ $advertise != 127.* ]] || flags+=(--endpoint-reconciler-type=none)
  [ -z "$audit_log" ] || flags+=(--audit-policy-file="$dir/audit-policy.yaml"
    --audit-log-path="$audit_log" --audit-log-maxsize=1000000) # one file, never rotated
}

flags_of_kube-controller-manager() {
  flags=(--bind-address=127.0.0.1 --secure-port="$((port + 3))" --leader-elect=false --profiling=false
    --kubeconfig="$kubeconfigs/controller-manager"
    --authentication-kubeconfig="$kubeconfigs/controller-manager"
    --authorization-kubeconfig="$kubeconfigs/controller-manager"
    --tls-cert-file="$pki/loopback.crt" --tls-private-key-file="$pki/loopback.key"
    --use-service-account-credentials=true
    --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/service-account.key"
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key"
    # By its default limit of 20 requests a second, the start alone takes 5 s.
    --kube-api-qps=200 --kube-api-burst=400 --controller-shutdown-timeout=1s)
}

flags_of_kube-scheduler() {
  flags=(--bind-address=127.0.0.1 --secure-port="$((port + 4))" --leader-elect=false --profiling=false
    --kubeconfig="$kubeconfigs/scheduler"
    --authentication-kubeconfig="$kubeconfigs/scheduler"
    --authorization-kubeconfig="$kubeconfigs/scheduler"
    --tls-cert-file="$pki/loopback.crt" --tls-private-key-file="$pki/loopback.key")
}

await_server() { # NAME
  local name=$1 probe
  case $name in
    etcd) probe=(open_port 127.0.0.1 "$((port + 1))") ;;
    kube-apiserver) probe=(api_ready) ;;
    kube-controller-manager) probe=(healthy "$((port + 3))") ;;
    kube-scheduler) probe=(healthy "$((port + 4))") ;;
  esac
  # Seconds on an idle machine; the limit is for one with ten times the load.
  process_await "$name" 120 "${probe[@]}"
}

# shellcheck disable=SC2016  # the inner shell expands it
open_port() { timeout 2 bash -c ': < "/dev/tcp/$0/$1"' "$1" "$2"; }
admin() { "$programs/kubectl" --kubeconfig="$kubeconfigs/admin" "$@"; }
# The port first: asking it is much cheaper than a kubectl.
api_ready() { open_port "$address" "$port" && admin --request-timeout=5s get --raw /readyz; }
healthy() { admin --request-timeout=5s --server="https://127.0.0.1:$1" get --raw /healthz; }
first_account() { admin --request-timeout=5s get serviceaccount default; }
