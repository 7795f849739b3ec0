#!/usr/bin/env bash
# Tests faults of hosts without ssh: a node that waits says for what, one that has ended may come again, a run ends with
# an error when a node's own process ends, a killed node 0 leaves nothing, a suspended one ends nothing, and one whose
# machine is lost ends everything on the other hosts, also if these were started in an ssh login.
#   tests/hosts/no_ssh_faults.sh DSTRAIN
# Of the last two, which take seconds, the number DSTRAIN_SAMPLE chooses one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 3
hosts_sshd node1 stop
lost=$((${DSTRAIN_SAMPLE:-$RANDOM} % 2 == 0)) login=yes

# node RANK NAME OPTION...: starts a node of a run on its host, in the background; node 1 in an ssh login from node3
# where $login is set.
node() {
  local words=("$dstrain" --config c.json --num_gpus 1 --output "$2" --no_ssh --node_rank "$1"
    --master_addr "$HOSTS_NETWORK.1" --steps 100000000 --set train_batch_size=12 --set steps_per_print=20 "${@:3}")
  if (($1 == 1)) && [[ -n $login ]]; then
    words=(ssh node2 "cd $PWD && export OMP_NUM_THREADS=1 TMPDIR=$TMPDIR && exec ${words[*]}")
    hosts_on node3 "${words[@]}" >"$2.$1.log" 2>&1 &
  else
    hosts_on "node$(($1 + 1))" "${words[@]}" >"$2.$1.log" 2>&1 &
  fi
}
ends() { # STATUS PROCESS LOG
  local status=0
  wait "$2" || status=$?
  ((status == $1)) || fail "exit status $status, not $1" "$3"
}
says() { hosts_wait_until "$2 says '$1'" grep -qE "$1" "$2"; }
# command_on NODE: prints the process of the command that was given on a host.
command_on() { programs_on "$1" "$dstrain" --no_ssh | sed -n 1p; }
no_ranks_on() { [[ -z $(hosts_pids "$1" "$dstrain")$(programs_on "$1" '*/orted') ]]; }
no_files() { [[ -z $(find tmp -mindepth 1 -maxdepth 1) ]]; }
nothing_left() {
  local host
  for host in node1 node2; do hosts_wait_until "nothing is left on $host" no_ranks_on "$host"; done
  hosts_wait_until 'no file is left' no_files
}

node 1 waits --nnodes 3
first=$!
says 'node 1 of 3: waits for node 0, which does not answer at 10.77.0.1:29500 yet' waits.1.log
node 0 waits --nnodes 3
master=$!
says 'node 0 of 3: waits at port 29500 for nodes 1-2' waits.0.log
says 'node 1 of 3: waits with node 0 for node 2' waits.1.log
kill -KILL "$(command_on node2)"
wait "$first" || true
says 'node 1 \(node2\) has gone: waits for it to come again' waits.0.log
node 1 waits --nnodes 3
first=$!
node 2 waits --nnodes 3
third=$!
says '^step=20 ' waits.0.log
echo 'a node that waits says for what, and one that has ended comes again'

kill -KILL "$(command_on node2)"
ends 2 "$master" waits.0.log
grep -qE 'error: node2 was lost: the dstrain that was started there by hand \(pid [0-9]+\) has ended' waits.0.log ||
  fail 'the lost node is not named' waits.0.log
ends 2 "$third" waits.2.log
wait "$first" || true
nothing_left
echo 'a node whose process ends is named'

node 1 killed --nnodes 2
second=$!
node 0 killed --nnodes 2
master=$!
says '^step=20 ' killed.0.log
kill -KILL "$(command_on node1)"
ends 137 "$master" killed.0.log
ends 2 "$second" killed.1.log
grep -q 'node 0 was lost: the connection to it ended' killed.1.log || fail 'node 0 is not named' killed.1.log
nothing_left
hosts_wait_until 'no process is left' hosts_idle node1 node2
echo 'a node 0 that is killed leaves nothing on any host'

((lost)) || login=
node 1 stays --nnodes 2 --set dstrain.silence_s=3
second=$!
node 0 stays --nnodes 2 --set dstrain.silence_s=3
master=$!
says '^step=20 ' stays.0.log
if ((!lost)); then
  steps=$(wc -l <stays/metrics.jsonl)
  zero=$(command_on node1)
  kill -STOP "$zero"
  sleep 5
  kill -CONT "$zero" $(<"/proc/$master/task/$master/children")
  (($(wc -l <stays/metrics.jsonl) > steps)) || fail 'the ranks did not go on' stays.0.log
  kill -TERM "$zero"
  ends 143 "$master" stays.0.log
  ends 143 "$second" stays.1.log
  nothing_left
  echo 'a suspended node 0 ends nothing'
else
  hosts_link node1 down
  ends 2 "$second" stays.1.log
  hosts_wait_until 'nothing is left on node2' no_ranks_on node2
  grep -q 'node 0 was lost: no word from it for 3 s' stays.1.log || fail 'node 0 is not named' stays.1.log
  ends 2 "$master" stays.0.log
  echo 'a node 0 that is lost ends everything, in an ssh login too'
fi
