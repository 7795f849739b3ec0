#!/usr/bin/env bash
# Tests that nothing is left on a host after a fault: a killed or stopped agent, a killed launching process. The next run
# on the host removes what is left where all of dstrain was killed there, but nothing of a living run. The errors name a
# killed agent, and a launching host that has lost its network. A stop signal to all processes leaves nothing either.
#   tests/hosts/leftovers.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 3

starts() { # NAME
  hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output "$1" --steps 1000000 >"$1.log" 2>&1 &
  run=$!
  hosts_wait_until 'the run has begun' grep -q '^step=1 ' "$1.log"
}
ends() { # NAME STATUS EXPECTED
  local status=0
  wait "$run" || status=$?
  ((status == $2)) && grep -Eq -- "$3" "$1.log" || fail "$1: status $status" "$1.log"
  echo "$1: $(grep -E -- "$3" "$1.log" | tail -n 1)"
}
places() { find tmp -mindepth 1 -maxdepth 1 | wc -l; }
nothing_left() { [[ $(places) == 0 ]] && hosts_idle node1 node2; }
# On a host without an agent, the processes that mpirun started end by themselves.
ranks_gone() { [[ -z $(ranks_on node2)$(programs_on node2 '*/orted') ]]; }
short_run() {
  hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output "$1" --steps 2 >"$1.log" 2>&1 ||
    fail "a short run" "$1.log"
}

starts killed
kill -KILL "$(agent_on node2)"
ends killed 2 '^dstrain: error: the agent of dstrain on node2 was killed by signal 9'
hosts_wait_until 'nothing is left of the run' nothing_left
echo 'a killed agent leaves nothing: its guard clears the host'

starts stopped
kill -STOP "$(agent_on node2)"
ends stopped 2 '^dstrain: error: node2 was lost: no word from it'
hosts_wait_until 'nothing is left of the run' nothing_left
echo 'nor does a stopped one, which the guard continues'

starts both
mapfile -t both < <(programs_on node2 "$dstrain" host_agent)
((${#both[@]} == 2)) || fail 'an agent and its guard' both.log
kill -KILL "${both[@]}"
ends both 2 '^dstrain: error: (node2 was lost: the connection to it ended|the agent of dstrain on node2)'
hosts_wait_until 'nothing is left of the run' nothing_left
echo 'where an agent and its guard are killed, the launching process clears the host'

starts all
mapfile -t all < <(programs_on node2 "$dstrain" host_agent)
kill -KILL "$(launcher_on node1)" "${all[@]}"
wait "$run" || true
hosts_wait_until 'the ranks of the killed agent are gone' ranks_gone
(($(places) > 0)) || fail 'there is nothing to clear' all.log
short_run after_all
hosts_wait_until 'nothing is left of both runs' nothing_left
echo 'where the launching process is killed too, the next run on the host clears it'

outside=$HOSTS_OWN/tmp
for host in node1 node2 node3; do mkdir "$host/own/tmp"; done
TMPDIR=$outside hosts_on node3 "$dstrain" --hostfile hosts --config c.json --output outside --steps 1000000 >outside.log 2>&1 &
run=$!
hosts_wait_until 'the run has begun' grep -q '^step=1 ' outside.log
kill -KILL "$(launcher_on node3)"
wait "$run" || true
nothing_outside() { [[ -z $(find node?/own/tmp -mindepth 1) ]] && hosts_idle node1 node2 node3; }
hosts_wait_until 'nothing is left where the killed launching process was' nothing_outside
echo 'a launching process outside the hostfile leaves nothing when it is killed'

# The agent of a host, or of the launching host without ranks, is killed: its guard ends mpirun or its daemon there, so
# that those on other hosts end, too.
for host in node1 node3; do
  hosts_on node3 "$dstrain" --hostfile hosts --config c.json --output "agent_$host" --steps 1000000 >"agent_$host.log" 2>&1 &
  run=$!
  hosts_wait_until 'the run has begun' grep -q '^step=1 ' "agent_$host.log"
  kill -KILL "$(agent_on "$host")"
  ends "agent_$host" 2 "^dstrain: error: the agent of dstrain on $host was killed by signal 9"
  hosts_wait_until 'nothing is left of the run' nothing_left
done
echo 'where the command is given on a host without ranks, the agent that was killed is named, and no other host'

starts everyone
kill -TERM $(hosts_pids node1) $(hosts_pids node2)
ends everyone 143 '^stopp(ing after|ed) '
! grep -q 'dstrain: error' everyone.log || fail 'a signal that reaches mpirun, orted and ssh is an error' everyone.log
hosts_wait_until 'nothing is left of the run' nothing_left
echo 'a stop signal that reaches mpirun, its daemons and ssh, too, is what ends the run'

starts living
short_run beside
lines=$(wc -l <living.log)
goes_on() { (($(wc -l <living.log) > lines + 5)); }
hosts_wait_until 'the other run goes on' goes_on
kill -TERM "$(launcher_on node1)"
ends living 143 '^step='
hosts_wait_until 'nothing is left of it' nothing_left
echo 'a living run is left alone'

starts cable
hosts_link node1 down
ends cable 2 '^dstrain: error: this machine lost its network \(node1\), so that node2 does not answer'
hosts_link node1 up
hosts_wait_until 'nothing is left of it' nothing_left
