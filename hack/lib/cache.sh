# shellcheck shell=bash
# Where the scripts in hack/ keep what takes long to make. To be sourced after
# say.sh.
#
#   cache_dir            prints the folder, makes it if need be
#   cache_key TEXT FILE...   prints a short hash of TEXT and the files' contents
#   cache_lock NAME      takes the lock NAME; one at a time
#   cache_unlock         gives it back
#   cache_work NAME      prints a new empty folder beside the final one
#   cache_done WORK NAME puts the finished folder in its place, at once
#
# Outside the checkout, so that `git clean` and a second clone do not cost the
# wait again.

cache_dir() {
  local dir=${CORONER_CACHE:-}
  if [ -z "$dir" ]; then
    [ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] ||
      bad CORONER_CACHE "" "HOME is not set either, so give an absolute path"
    dir=${XDG_CACHE_HOME:-$HOME/.cache}/coroner
  fi
  [[ $dir = /* ]] || bad CORONER_CACHE "$dir" "give an absolute path"
  mkdir -p "$dir" || bad CORONER_CACHE "$dir" "give a folder that can be made and written"
  printf '%s\n' "$dir"
}

cache_key() {
  local text=$1
  shift
  { printf '%s\n' "$text"; cat -- "$@"; } | sha256sum | cut -c 1-16
}

# A child that may outlive the shell must not inherit the lock: start it with
# {cache_lock_fd}>&-
cache_lock_fd=
cache_lock() {
  local name=$1 dir
  dir=$(cache_dir)
  exec {cache_lock_fd}> "$dir/$name.lock"
  if ! flock -n "$cache_lock_fd"; then
    say "another process is making $name; waiting for it"
    flock "$cache_lock_fd"
  fi
}

cache_unlock() { exec {cache_lock_fd}>&-; }

# Called with the lock held, so a folder of that kind that is still there
# belongs to a run that was killed.
cache_work() {
  local dir
  dir=$(cache_dir)
  rm -rf "$dir/.$1".??????
  mktemp -d "$dir/.$1.XXXXXX"
}

cache_done() {
  local dir
  dir=$(cache_dir)
  # Whatever the umask of the caller: these are no secrets.
  chmod -R go+rX "$1"
  rm -rf "${dir:?}/$2"
  # A rename: nobody ever sees half a folder.
  mv -T "$1" "$dir/$2"
}
