# shellcheck shell=bash
# Finds, or builds, the programs of a Kubernetes cluster. To be sourced after
# say.sh, cache.sh and packages.sh.
#
#   find_programs   sets $programs to a folder that holds all of programs_needed
#   find_lab_csi    makes sure that lab-csi is there as well
#
# Either all programs come from one place or none: versions are never mixed.

programs_needed=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet)
programs_oldest=1.32 # the first with node names in the tokens of pods, for good
programs_module=$(cd "$(dirname "${BASH_SOURCE[0]}")/../go/control-plane" && pwd)
programs=

find_programs() {
  [ -z "$programs" ] || return 0
  if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    programs_from_assets
  elif programs_in_path; then
    link_programs ""
    say "using the Kubernetes programs in PATH, $(kubernetes_version kube-apiserver)"
  else
    build_programs
  fi
}

find_lab_csi() {
  find_programs
  [ -x "$programs/lab-csi" ] || build_lab_csi
}

# --- found -------------------------------------------------------------------

programs_from_assets() {
  local name missing=()
  for name in "${programs_needed[@]}"; do
    [ -x "$KUBEBUILDER_ASSETS/$name" ] || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] || bad KUBEBUILDER_ASSETS "$KUBEBUILDER_ASSETS" \
    "it lacks ${missing[*]}; give a folder with all of ${programs_needed[*]}, or unset it"
  same_version "$KUBEBUILDER_ASSETS"/ || bad KUBEBUILDER_ASSETS "$KUBEBUILDER_ASSETS" \
    "its programs have to be of one Kubernetes version, $programs_oldest or newer"
  link_programs "$(cd "$KUBEBUILDER_ASSETS" && pwd)"/
}

programs_in_path() {
  local name
  for name in "${programs_needed[@]}"; do
    type -P "$name" > /dev/null || return 1
  done
  same_version "" || {
    note "not using the Kubernetes programs in PATH: they are not of one version, $programs_oldest or newer"
    return 1
  }
}

# kubernetes_version PROGRAM: v1.35.4
kubernetes_version() {
  local text
  case ${1##*/} in
    kubectl) text=$("$1" version --client 2>/dev/null) ;;
    *) text=$("$1" --version 2>/dev/null) ;;
  esac || true
  grep -oE -m 1 'v1\.[0-9]+\.[0-9]+' <<< "$text" || true
}

# same_version PREFIX: whether PREFIX's programs are of one version, not too old.
same_version() {
  local name version first=
  for name in "${programs_needed[@]}"; do
    [ "$name" != etcd ] || continue # numbered on its own
    version=$(kubernetes_version "$1$name")
    first=${first:-$version}
    [ -n "$version" ] && [ "$version" = "$first" ] || return 1
  done
  at_least "${first#v}" "$programs_oldest"
}

# link_programs PREFIX: one folder for all of them, to which lab-csi can be added.
link_programs() {
  local name work target key paths=()
  for name in "${programs_needed[@]}"; do
    paths+=("$(type -P "$1$name")")
  done
  ! type -P "$1lab-csi" > /dev/null || paths+=("$(type -P "$1lab-csi")")
  key=control-plane-found-$(cache_key "${paths[*]}" /dev/null)
  target=$(cache_dir)/$key
  if [ ! -e "$target" ]; then
    cache_lock control-plane
    work=$(cache_work control-plane)
    ln -s "${paths[@]}" "$work/"
    cache_done "$work" "$key"
    cache_unlock
  fi
  programs=$target
}

# --- built -------------------------------------------------------------------

# Without debug information: a sixth less work, and nobody debugs these.
programs_build_flags=(-trimpath -gcflags=all=-dwarf=false)

# module_version MODULE: the version that our go.mod requires of it.
module_version() { awk -v m="$1" '$1 == m { print $2; exit }' "$programs_module/go.mod"; }

# What the result depends on, besides Go itself.
programs_sources() {
  printf '%s\n' "$programs_module"/go.mod "$programs_module"/go.sum
  find "$programs_module" -name '*.go' ! -name '*_test.go' | sort
}

# programs_key GO_VERSION: the name of the folder for this build.
programs_key() {
  local sources
  mapfile -t sources < <(programs_sources)
  printf 'control-plane-%s\n' "$(cache_key "$1 ${programs_build_flags[*]}" "${sources[@]}")"
}

go_version() { GOTOOLCHAIN=local go version; }

need_our_go() {
  need_go "building Kubernetes' programs" "$(awk '$1 == "go" { print $2; exit }' "$programs_module/go.mod")"
}

build_programs() {
  local key target
  [[ ${CORONER_KEEP_GO_CACHE:-0} = [01] ]] || bad CORONER_KEEP_GO_CACHE "$CORONER_KEEP_GO_CACHE" "give 0 or 1"
  need_our_go
  key=$(programs_key "$(go_version)")
  target=$(cache_dir)/$key
  if [ ! -e "$target" ]; then
    cache_lock control-plane
    # Whoever held the lock before us may have built it.
    [ -e "$target" ] || compile_programs "$key"
    cache_unlock
  fi
  programs=$target
}

compile_programs() {
  local key=$1 work name begin=$SECONDS
  say "building Kubernetes $(module_version k8s.io/kubernetes) and etcd $(module_version go.etcd.io/etcd/server/v3) from their Go modules: once, about 5 to 8 minutes on 2 cores"
  note "needs about 100 MB of downloads, 3 GB of memory and 4 GB of disk, of which 160 MB stay"
  work=$(cache_work control-plane)
  go_environment
  go_build "$work" "$(linker_flags)" . ./lab-csi
  for name in "${programs_needed[@]}"; do
    ln -s control-plane "$work/$name"
  done
  cache_done "$work" "$key"
  say "built in $((SECONDS - begin)) s: $(cache_dir)/$key"
  forget_go_caches
}

# For programs that were found elsewhere: lab-csi alone, which takes about a minute.
build_lab_csi() {
  local work
  need_our_go
  say "building lab-csi: once, about a minute"
  cache_lock control-plane
  work=$(cache_work control-plane)
  go_environment
  go_build "$work" "-s -w" ./lab-csi
  chmod go+rx "$work/lab-csi"
  mv "$work/lab-csi" "$programs/lab-csi"
  rmdir "$work"
  forget_go_caches
  cache_unlock
}

# The caches of Go are our own, so that they can be thrown away afterwards:
# nobody else has a use for 3.3 GB of Kubernetes. Those that the caller names
# are used as they are and kept.
go_environment() {
  local dir
  dir=$(cache_dir)/go
  go_caches=()
  [ -n "${GOCACHE:-}" ] || go_caches+=("$dir/build")
  [ -n "${GOMODCACHE:-}" ] || go_caches+=("$dir/mod")
  export GOCACHE=${GOCACHE:-$dir/build} GOMODCACHE=${GOMODCACHE:-$dir/mod}
  # -modcacherw: without it only `go clean` can delete the modules.
  export GOFLAGS="-mod=readonly -modcacherw -buildvcs=false"
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off
  unset GOOS GOARCH
}

# CORONER_KEEP_GO_CACHE=1 is for whoever works on these programs: a second
# build then takes seconds.
forget_go_caches() {
  local trash
  [ "${CORONER_KEEP_GO_CACHE:-0}" != 1 ] && [ ${#go_caches[@]} -gt 0 ] || return 0
  # Away first, in one step: Go would trust a module that is half deleted.
  trash=$(mktemp -d "$(cache_dir)/.control-plane.XXXXXX")
  mv "${go_caches[@]}" "$trash/"
  rmdir "$(cache_dir)/go" 2>/dev/null || true
  note "removing the compiler's caches"
  rm -rf "$trash"
}

# What `kubectl version` and the Node objects show comes from the linker.
linker_flags() {
  local version minor package flags="-s -w"
  version=$(module_version k8s.io/kubernetes)
  minor=${version#v1.}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
  done
  printf '%s\n' "$flags"
}

# go_build WORK LINKER_FLAGS PACKAGE...: into WORK. go_environment comes first.
go_build() {
  local flags=$2 total log
  build_work=$1 build_pid=
  log=$(cache_dir)/control-plane.log
  shift 2
  : > "$log"
  trap '[ -z "$build_pid" ] || kill "$build_pid" 2>/dev/null || true; rm -rf "$build_work"' EXIT
  note "fetching the modules"
  total=$(go -C "$programs_module" list -deps "$@" 2>> "$log" | wc -l) || build_failed "$log"
  # -v names each package when its turn comes.
  # The descriptor is closed for it: Go leaves a helper behind for a moment, which must not hold our lock.
  # shellcheck disable=SC2154  # cache_lock sets it
  go -C "$programs_module" build -v "${programs_build_flags[@]}" -ldflags="$flags" -o "$build_work/" "$@" \
    >> "$log" 2>&1 {cache_lock_fd}>&- &
  build_pid=$!
  progress "$build_pid" count_packages "$log" "$total" || build_failed "$log"
  trap - EXIT
}

count_packages() {
  printf '%d of at most %d packages\n' "$(grep -cvE '^go: |[: ]' "$1" || true)" "$2"
}

build_failed() {
  grep -E '^go: |[: ]' "$1" | grep -v '^go: downloading' | tail -n 30 >&2 || true
  die "go could not build Kubernetes' programs (see above; all of it in $1). What is done so far is kept: run it again"
}
