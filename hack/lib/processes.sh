# shellcheck shell=bash
# Long-running programs, started in the background and found again by a later
# call. To be sourced after say.sh.
#
# The caller sets $run and $logs, the folders of pid files and logs, and may
# hold a lock on descriptor $process_lock, which the programs do not inherit.
#
# A pid alone says little, since pids are used again: a pid file holds the
# process' start time too (in ticks since boot), and the program's name is
# compared, in case the file is from before a reboot.

run='' logs='' process_lock=''

# process_stat PID: sets $state (one letter) and $started; false when there is none.
process_stat() {
  local stat fields
  # Not $(< file): where the file is missing, that ends the whole shell under set -e.
  { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 1
  # The name in parentheses may hold anything; the fields after it do not.
  read -r -a fields <<< "${stat##*) }"
  state=${fields[0]:-} started=${fields[19]:-}
  [ -n "$started" ]
}

# pid_of NAME: sets $pid and $started to those of the running program; false
# when it does not run.
pid_of() {
  local recorded state argv0=
  pid='' started=''
  { read -r pid recorded < "$run/$1.pid"; } 2>/dev/null || return 1
  process_stat "$pid" && [ "$started" = "$recorded" ] || return 1
  # A zombie is dead; its parent may take seconds to notice.
  [[ $state != [ZX] ]] || return 1
  { IFS= read -r -d '' argv0 < "/proc/$pid/cmdline"; } 2>/dev/null || true
  # One that has just been killed has no command line any more, but still ports.
  [ -z "$argv0" ] || [ "${argv0##*/}" = "$1" ]
}

# process_start NAME PROGRAM ARGS...
process_start() {
  local name=$1 program=$2 pid state started
  shift 2
  # A clean environment: etcd reads ETCD_*, all of them read proxy settings.
  env -i PATH="$PATH" HOME=/nonexistent setsid "$program" "$@" \
    >> "$logs/$name.log" 2>&1 < /dev/null {process_lock}>&- &
  pid=$!
  disown "$pid" # else the shell reports its death, in its own words
  process_stat "$pid" || die "$name ended at once: see $logs/$name.log"
  printf '%s %s\n' "$pid" "$started" > "$run/$name.pid"
  # Until the shell that was forked has become the program, it has another name.
  for _ in {1..500}; do
    if pid_of "$name"; then return; fi
    process_stat "$pid" || break
    sleep 0.01
  done
  process_failed "$name"
}

# process_stop NAME SIGNAL SECONDS: sends the signal, and SIGKILL after that time.
process_stop() {
  local name=$1 signal=$2 seconds=$3 pid started
  if pid_of "$name"; then
    kill "-$signal" "$pid" 2>/dev/null || true
    if [ "$signal" != KILL ] && ! process_gone "$pid" "$started" "$seconds"; then
      warn "$name did not end within $seconds s of SIG$signal: killing it"
      kill -KILL "$pid" 2>/dev/null || true
    fi
    process_gone "$pid" "$started" 10 || die "$name (process $pid) does not end, not even by SIGKILL"
  fi
  rm -f "$run/$name.pid"
}

# process_gone PID STARTED SECONDS: waits until nothing of it is left.
process_gone() {
  local state started i
  for ((i = 0; i <= $3 * 50; i++)); do
    process_stat "$1" && [ "$started" = "$2" ] || return 0
    # A zombie whose other threads still run holds files and ports yet.
    [[ $state != [ZX] ]] || [ "$(ls "/proc/$1/task" 2>/dev/null)" != "$1" ] || return 0
    sleep 0.02
  done
  return 1
}

# process_await NAME SECONDS COMMAND...: until COMMAND succeeds; stops with the
# end of the log when the program ends first.
process_await() {
  local name=$1 seconds=$2 deadline=$((SECONDS + $2)) pid
  shift 2
  until "$@" > /dev/null 2>&1; do
    pid_of "$name" || process_failed "$name"
    ((SECONDS < deadline)) || {
      process_log "$name"
      die "$name is not ready after $seconds s; its log is $logs/$name.log"
    }
    sleep 0.1
  done
}

process_failed() {
  process_log "$1"
  die "$1 ended by itself; its log is $logs/$1.log"
}

process_log() { tail -n 8 "$logs/$1.log" | cut -c 1-300 >&2 || true; }
