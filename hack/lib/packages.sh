# shellcheck shell=bash
# What the scripts in hack/ need of the machine. To be sourced after say.sh.
#
#   need_packages WHY PACKAGE...          Debian packages, installed when missing
#   need_commands WHY COMMAND[:PACKAGE]...  the same, but only when a command is missing
#   need_go WHY VERSION                   Go of at least VERSION; never fetched
#   need_rust WHY                         the toolchain of rust-toolchain.toml; never fetched
#   as_root COMMAND...                    runs it as root
#   at_least VERSION VERSION              true when the first is not older
#
# CORONER_NO_INSTALL=1 makes the first two name what is missing, and stop.

packages_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif ! command -v sudo > /dev/null; then
    die "\"$*\" has to run as root, and there is no sudo here: run it as root yourself, then again"
  elif [ -t 0 ]; then
    sudo -- "$@"
  else
    sudo -n -- "$@" # nobody is there to type a password
  fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

need_packages() {
  local why=$1 package missing=()
  shift
  command -v dpkg-query > /dev/null ||
    die "$why needs what Debian calls $*: install that here, there is no dpkg to do it with"
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "${CORONER_NO_INSTALL:-0}" != 1 ] ||
    die "$why needs ${missing[*]}: apt-get install ${missing[*]}"
  say "installing ${missing[*]}: $why needs it"
  # The lists of a fresh machine are empty or out of date: fetch them on failure only.
  apt_install "${missing[@]}" || { apt_get update && apt_install "${missing[@]}"; } ||
    die "$why needs ${missing[*]}, which apt-get could not install (see above)"
}

# Another apt-get may be at work, on machines that have just started above all.
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=500 "$@" < /dev/null >&2
}
apt_install() { apt_get install -y --no-install-recommends "$@"; }

need_commands() {
  local why=$1 item packages=()
  shift
  for item in "$@"; do
    command -v "${item%%:*}" > /dev/null || packages+=("${item##*:}")
  done
  [ ${#packages[@]} -eq 0 ] || need_packages "$why" "${packages[@]}"
}

at_least() { printf '%s\n%s\n' "$2" "$1" | sort -V -C; }

need_go() {
  local why=$1 wanted=$2 found
  # Where Go's own archive goes, which is often missing in a root shell's PATH.
  command -v go > /dev/null || PATH=$PATH:/usr/local/go/bin
  command -v go > /dev/null ||
    die "$why needs Go $wanted or newer, and there is no go in PATH: install Go"
  # local: a newer Go is not fetched behind anybody's back.
  found=$(GOTOOLCHAIN=local go env GOVERSION)
  found=${found#go}
  at_least "${found%% *}" "$wanted" ||
    die "$why needs Go $wanted or newer, and $(command -v go) is $found: install a newer one"
}

need_rust() {
  local why=$1 wanted found
  wanted=$(sed -n 's/^channel = "\(.*\)"$/\1/p' "$packages_root/rust-toolchain.toml")
  if command -v rustup > /dev/null; then
    # Asking rustc itself would make rustup fetch the toolchain.
    rustup toolchain list | grep -q "^$wanted\(-\| \|\$\)" ||
      die "$why needs Rust $wanted: rustup toolchain install $wanted"
    return
  fi
  command -v cargo > /dev/null || die "$why needs Rust $wanted, and there is no cargo in PATH"
  found=$(rustc --version | cut -d ' ' -f 2)
  [ "$found" = "$wanted" ] || die "$why needs Rust $wanted, and $(command -v rustc) is $found"
}
