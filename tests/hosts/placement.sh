#!/usr/bin/env bash
# Tests that ranks run on the hosts of the hostfile, in its order, on whichever host the command is given: the weights
# are bitwise those of one host. A machine that the hostfile has under two names is reported before anything starts.
#   tests/hosts/placement.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 3
training_reference "$dstrain" 2

# run NAME LAUNCHING_HOST LINE...: runs dstrain with a hostfile of these lines.
run() {
  printf '%s\n' "${@:3}" >"$1.hosts"
  hosts_on "$2" "$dstrain" --hostfile "$1.hosts" --config c.json --output "$1" --steps "${steps:-5}" \
    --set zero_optimization.stage=2 >"$1.log" 2>&1
}
# places NAME LAUNCHING_HOST LINE...: does the same, and fails unless the weights are those of one host.
places() {
  run "$@" || fail "$1" "$1.log"
  same_weights 2 "$1"
}

places first node1 'node1 slots=2' 'node2 slots=2'
places second node2 'node1 slots=2' 'node2 slots=2'
places outside node3 'node1 slots=2' 'node2 slots=2'
places three_first node1 'node1 slots=2' 'node2 slots=1' 'node3 slots=1'
places three_last node3 'node1 slots=1' 'node2 slots=1' 'node3 slots=2'
places three_middle node2 'node3 slots=1' 'node2 slots=2' 'node1 slots=1'
places localhost node2 'node1 slots=3' 'localhost slots=1'
places loopback node2 'node1 slots=1' '127.0.0.1 slots=3'
places address node2 'node1 slots=2' '10.77.0.2 slots=2'

hosts_on node2 "$dstrain" --hostfile second.hosts --config c.json --dry_run >dry.log 2>&1 || fail dry dry.log
grep -Eq '^# node2 +0-1 +2-3$' dry.log && grep -q 'mpirun' dry.log || fail '--dry_run does not say where' dry.log
echo '--dry_run says where ranks would run'

# The processes of ranks are on the hosts that the file names.
steps=100000 run where node2 'node1 slots=1' 'node2 slots=3' &
launcher=$!
hosts_wait_until 'the run has begun' grep -q '^step=1 ' where.log
for expected in 'node1 0' 'node2 1 2 3'; do
  host=${expected%% *}
  ranks=$(for process in $(hosts_pids "$host" "$dstrain --hostfile"); do
    tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'
  done | sort -n | xargs)
  [[ "$host $ranks" == "$expected" ]] || fail "$host has ranks $ranks" where.log
done
for process in $(hosts_pids node2 "$dstrain --hostfile"); do kill -KILL "$process" 2>/dev/null || true; done
wait "$launcher" || true
echo 'ranks are where the hostfile says'

# refuses NAME LAUNCHING_HOST LINE...: fails unless the run ends with one error, which says that two names are one
# machine.
refuses() {
  local status=0
  run "$@" || status=$?
  ((status == 1)) && grep -q 'is the same machine as' "$1.log" ||
    fail "$1: status $status" "$1.log"
  [[ $(grep -c 'dstrain: error' "$1.log") == 1 ]] || fail "$1: more than one error" "$1.log"
  echo "one machine under two names: $1"
}
echo '10.77.0.2 other2' >>etc_hosts
refuses alias node1 'node1 slots=2' 'node2 slots=1' 'other2 slots=1'
refuses own_name node2 'node1 slots=2' 'node2 slots=1' 'localhost slots=1'
refuses two_loopbacks node1 'localhost slots=1' '127.0.0.1 slots=1' 'node2 slots=2'
status=0
run twice node1 'node1 slots=2' 'node2 slots=1' 'node2 slots=1' || status=$?
((status == 1)) && grep -q "twice.hosts:3: host 'node2' is already in line 2" twice.log ||
  fail "one name twice: status $status" twice.log
echo 'one name twice is told'
