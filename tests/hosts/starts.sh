#!/usr/bin/env bash
# Tests starts that cannot succeed: one line says why, and nothing is left. The processes that start ranks are watched
# as ranks are, and one Ctrl-C ends a start that makes no progress.
#   tests/hosts/starts.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 3

nothing_left() {
  local host process
  for host in node1 node2 node3; do
    for process in $(hosts_pids "$host"); do
      # Ignores a process that has ended since hosts_pids looked.
      [[ ! -d /proc/$process ]] || return 1
    done
  done
  [[ -z $(ls tmp) ]]
}

# ends NAME STATUS EXPECTED: fails unless $status is STATUS, the run has printed EXPECTED in its only error, and
# nothing of it is left. If a signal ended the run (STATUS > 128), it must have printed no error.
ends() {
  ((status == $2)) || fail "$1: status $status" "$1.log"
  [[ -z $3 ]] || grep -Eq -- "$3" "$1.log" || fail "$1: '$3' is not said" "$1.log"
  (($(grep -c 'dstrain: error' "$1.log") == ($2 < 128))) || fail "$1: not one error" "$1.log"
  ! grep -q -- '-----' "$1.log" || fail "$1: a page of Open MPI's" "$1.log"
  hosts_wait_until "nothing is left of $1" nothing_left
  echo "$1: $(grep -E -- "${3:-.}" "$1.log" | tail -n 1)"
}

# refuses NAME HOST EXPECTED OPTION...: fails unless dstrain on HOST ends with status 1 and the error EXPECTED.
# $limit: a command that runs before it.
refuses() {
  status=0
  hosts_on "$2" bash -c "${limit:-true} && exec \"\$@\"" run "$dstrain" --hostfile hosts --config c.json \
    --output "$1" "${@:4}" >"$1.log" 2>&1 || status=$?
  ends "$1" 1 "$3"
}
refuses port node1 "--master_port 80: ports below 1024 are the system's" --master_port 80
limit='ulimit -n 20' refuses files node1 'may open 20 files here, and needs [0-9]+: raise the limit .ulimit -n [0-9]+'
# node1 and node2 answer node3's ssh, but can open no connection to node3.
for host in node1 node2; do
  hosts_on "$host" ip rule add ipproto tcp sport 22 to "$HOSTS_NETWORK.3" lookup main prio 10
  hosts_on "$host" ip rule add to "$HOSTS_NETWORK.3" prohibit prio 20
done
refuses ssh_only node3 \
  'node1 +network +cannot reach node3, where the command was given,? \(10.77.0.3 port [0-9]+: '

# starts NAME: starts a run in the background and sets $run to its process.
starts() {
  hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output "$1" --steps 100000 >"$1.log" 2>&1 &
  run=$!
}
# is_there COMMAND...: sets $victim to the first process that the command prints; fails if it prints none.
is_there() {
  victim=$("$@")
  victim=${victim%%$'\n'*}
  [[ -n $victim ]]
}
ended() {
  status=0
  wait "$run" || status=$?
}
# starter_is_stopped NAME EXPECTED COMMAND...: stops the process that the command prints as soon as there is one.
starter_is_stopped() {
  starts "$1"
  hosts_wait_until "$1 is there" is_there "${@:3}"
  kill -STOP "$victim"
  ended
  ends "$1" 2 "$2"
}
# Not the mpirun that is asked for its version.
starter_is_stopped stopped_mpirun '^dstrain: error: mpirun \(pid [0-9]+\) is stopped' \
  programs_on node1 '*/orterun' --map-by
starter_is_stopped stopped_orted "^dstrain: error: mpirun's daemon on node2 \(orted, pid [0-9]+\) is stopped" \
  daemon_on node2

starts killed_orted
hosts_wait_until 'the run has begun' grep -q '^step=1 ' killed_orted.log
is_there daemon_on node2
kill -KILL "$victim"
ended
ends killed_orted 2 "^dstrain: error: mpirun's daemon on node2 \(orted, pid [0-9]+\) ended before its ranks were done"

# With a daemon that does nothing a start makes no progress; one Ctrl-C ends it.
cat >orted <<'END'
#!/bin/bash
while true; do sleep 1; done
END
chmod +x orted
hosts_on node2 mount --bind "$PWD/orted" "$(hosts_on node2 realpath "$(type -P orted)")"
starts interrupted
hosts_wait_until 'the daemon is there' is_there programs_on node2 '*' orted
is_there launcher_on node1
kill -INT "$victim"
ended
ends interrupted 130 '^stopped by signal 2 \(Interrupt\) before the first step: this start has written no weights'
! grep -q 'stopping after this step' interrupted.log || fail 'a step is promised that there is none of' interrupted.log
[[ $(tail -n 1 interrupted.log) == stopped* ]] || fail 'another last line' interrupted.log
