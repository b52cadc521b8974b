# shellcheck shell=bash
# What the scripts in hack/ say. To be sourced; sets no shell options.
#
#   say TEXT...          what happens now
#   note TEXT...         a detail of it
#   warn TEXT...         goes on, but look at this
#   die TEXT...          stops with status 1
#   bad NAME VALUE HINT  stops with status 2: a flag or a variable is wrong
#   unknown ARGUMENT     stops with status 2: names it and shows the caller's usage
#   show_help            shows the caller's usage where results go, and stops
#   json_file FILE       prints its full path; stops unless FILE can be written, before anything was done for it
#   progress PID COMMAND...  tells what COMMAND prints until process PID ends
#
# All of it goes to standard error: standard output is for results.

# Colours only where somebody looks at them (https://no-color.org).
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  say_bold=$'\e[1m' say_dim=$'\e[2m' say_yellow=$'\e[33m' say_red=$'\e[31m' say_plain=$'\e[0m'
else
  say_bold='' say_dim='' say_yellow='' say_red='' say_plain=''
fi
say_name=${0##*/}

say() { printf '%s%s:%s %s\n' "$say_bold" "$say_name" "$say_plain" "$*" >&2; }
note() { printf '%s  %s%s\n' "$say_dim" "$*" "$say_plain" >&2; }
warn() { printf '%s%s: warning:%s %s\n' "$say_yellow" "$say_name" "$say_plain" "$*" >&2; }

die() {
  printf '%s%s: error:%s %s\n' "$say_red" "$say_name" "$say_plain" "$*" >&2
  exit 1
}

bad() {
  printf '%s%s: error:%s %s is "%s": %s\n' "$say_red" "$say_name" "$say_plain" "$1" "$2" "$3" >&2
  exit 2
}

unknown() {
  printf '%s%s: error:%s there is no "%s" here\n\n' "$say_red" "$say_name" "$say_plain" "$1" >&2
  usage
}

show_help() {
  (usage) 2>&1 || true
  exit 0
}

json_file() {
  local file
  file=$(realpath -m -- "$1")
  [ ! -d "$file" ] || bad --json "$1" "that is a folder; give a file"
  mkdir -p "$(dirname "$file")" 2> /dev/null || bad --json "$1" "its folder cannot be made"
  [ -w "$file" ] || { [ ! -e "$file" ] && [ -w "$(dirname "$file")" ]; } || bad --json "$1" "it cannot be written"
  printf '%s\n' "$file"
}

# progress: one line that is rewritten each second on a terminal; elsewhere,
# where every line stays (a CI log), one each 15 s.
# Returns the status of PID, which has to be a child of this shell.
progress() {
  local pid=$1 begin=$SECONDS told=$SECONDS
  shift
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ -t 2 ]; then
      printf '\r\e[K  %4d s  %s' "$((SECONDS - begin))" "$("$@")" >&2
    elif ((SECONDS - told >= 15)); then
      told=$SECONDS
      note "$((SECONDS - begin)) s  $("$@")"
    fi
  done
  [ ! -t 2 ] || printf '\r\e[K' >&2
  wait "$pid"
}
