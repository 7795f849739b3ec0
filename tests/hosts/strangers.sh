#!/usr/bin/env bash
# Tests runs while a stranger, a third host of their network, connects to their ports and sends what no process of a run
# does: the runs go on, their memory and open files stay as they are, and no word of a stranger gets into a command. A
# stranger in another network does not reach the watchers of mpirun, and one in the middle of a relay's connection ends
# the run with an error that names the connection.
#   tests/hosts/strangers.sh DSTRAIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/training.sh"
training_hosts "$1" 3 python3
training_by_mpirun

# stranger NODE PORT ACT...: what a stranger does at a port of a host.
stranger() { hosts_on node3 python3 "$here/tools/stranger.py" "$HOSTS_NETWORK.${1#node}" "${@:2}"; }

# unharmed PROCESS WHAT LOG: fails unless a process runs, with less than 64 MiB of memory and fewer than 128 open files.
unharmed() {
  local kib files
  kib=$(awk '/^VmHWM/ { print $2 }' "/proc/$1/status" 2>/dev/null) || fail "$2 has ended" "$3"
  files=$(find "/proc/$1/fd" -type l | wc -l)
  ((kib < 65536 && files < 128)) || fail "$2 has $kib KiB and $files open files" "$3"
}

# molest NODE PROCESS WHAT LOG: all that a stranger does at the port of a process.
molest() {
  local port act
  port=$(listens "$2" | cut -d: -f2)
  [[ -n $port ]] || fail "$3 does not listen" "$4"
  for act in lines endless; do
    stranger "$1" "$port" "$act" || fail "$3: $act" "$4"
    unharmed "$2" "$3 after $act" "$4"
  done
  coproc stranger "$1" "$port" silent
  read -r _ <&"${COPROC[0]}"
  sleep 0.1  # for a few turns of the process
  unharmed "$2" "$3 with silent connections" "$4"
  kill "$COPROC_PID"
  wait "$COPROC_PID" 2>/dev/null || true
  echo "$3 is unharmed"
}

ends() {
  local status=0
  wait "$2" || status=$?
  ((status == $1)) || fail "exit status $status, not $1" "$3"
}
stop_node_zero() {
  local process
  for process in $(programs_on node1 "$dstrain" '--node_rank 0'); do
    grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$process/environ" || kill -TERM "$process"
  done
}
trains() { grep -q 'step=3 ' "$1"; }

# The watchers of the user's own mpirun. The stranger reaches an address of rank 0's host in another network, too.
hosts_on node1 ip addr add 10.99.0.1/32 dev lo
hosts_on node3 ip route add 10.99.0.1/32 via "$HOSTS_NETWORK.1"
hosts_on node1 "${by_mpirun[@]}" --config c.json --output watched --steps 100000000 >watched.log 2>&1 &
mpirun=$!
hosts_wait_until 'it trains' trains watched.log
watcher=$(hosts_pids node1 host_watch)
hosts_on node3 python3 "$here/tools/stranger.py" 10.99.0.1 "$(listens "$watcher" | cut -d: -f2)" reach >reached
grep -qx refused reached || fail 'the watcher listens in every network' reached
molest node1 "$watcher" 'the watcher' watched.log
kill -KILL "$(hosts_pids node2 '--output watched' | head -1)"
wait "$mpirun" || true
grep -qE 'dstrain: error: rank [0-3] \(pid [0-9]+ on node2\) (was killed|ended)' watched.log ||
  fail 'the watcher does not see a killed rank any more' watched.log

# Nodes that are started by hand.
nodes=2
node() {
  hosts_on "node$(($1 + 1))" "$dstrain" --config c.json --num_gpus 2 --output "$2" --no_ssh --nnodes "$nodes" \
    --node_rank "$1" --master_addr "$HOSTS_NETWORK.1" "${@:3}" >"$2.$1.log" 2>&1 &
}
node 0 met --steps 100000000
master=$!
hosts_wait_until 'node 0 waits' grep -q 'waits at port' met.0.log
molest node1 "$(hosts_pids node1 '--output met')" 'node 0' met.0.log
mark=$HOSTS_DIR/stranger_was_run
for member in '"host": "-oProxyCommand=touch '"$mark"'"' '"host": "a b"' '"slots": 2000000000' '"slots": -1' \
  '"slots": 65536' '"port": 0' '"addresses": [7]' '"host": "node1"'; do
  introduction=$(python3 -c 'import json, sys; print(json.dumps(json.loads(sys.argv[1]) | json.loads(sys.argv[2])))' \
    '{"host": "x", "addresses": ["10.77.0.3"], "port": 9, "token": "t", "node": 1, "nnodes": 2, "slots": 1}' "{$member}")
  stranger node1 29500 say '' "$introduction" >>said
done
node 1 met --steps 100000000
second=$!
hosts_wait_until 'it trains' trains met.0.log
molest node2 "$(hosts_pids node2 '--node_rank 1')" 'node 1' met.1.log
stop_node_zero
ends 143 "$master" met.0.log
ends 143 "$second" met.1.log
refused=(
  "its host name '-oProxyCommand=touch $mark' begins with '-', which programs read as an option"
  "its host name 'a b' holds a character other than letters, digits, '.', '-' and '_'"
  'a run has at most 65536 ranks, and it offers 2000000000'
  'it offers no rank'
  'a run has at most 65536 ranks, and it offers 65536'
  'another node calls itself node1, too: give each host a name of its own'
)
for why in "${refused[@]}"; do
  grep -qF "\"why\":\"$why\"" said || fail "not refused because $why" said
  grep -qF "was refused: $why" met.0.log || fail "not told: $why" met.0.log
done
[[ ! -e $mark ]] || fail 'a shell has run the name of a host' met.0.log
echo 'no word of a stranger gets into a run'

# With a secret a stranger does not get so far, and ranks do not see it.
secret=$(head -c 30 /dev/urandom | base64 -w 0)
echo "$secret" >secret
chmod 600 secret
echo "DSTRAIN_SECRET=$secret" >.deepspeed_env
DSTRAIN_SECRET=$secret node 0 known --steps 100000000
master=$!
hosts_wait_until 'node 0 waits' grep -q 'waits at port' known.0.log
for key in '' "$secret "; do
  stranger node1 29500 say "$key" \
    '{"host":"x","addresses":["10.77.0.3"],"port":9,"token":"t","node":1,"nnodes":2,"slots":1}' >impostor || true
  grep -qx '{"refused":true}' impostor || fail 'an impostor is not refused' impostor
done
node 1 known
ends 1 $! known.1.log
grep -q 'the two have different secrets: give all nodes the same --secret_file' known.1.log ||
  fail 'a node without the secret is not told so' known.1.log
node 1 known --steps 100000000 --secret_file secret
second=$!
hosts_wait_until 'it trains' trains known.0.log
molest node2 "$(hosts_pids node2 '--node_rank 1')" 'node 1 with a secret' known.1.log
for process in $(hosts_pids node1 '--output known') $(hosts_pids node2 '--output known'); do
  ! grep -qF "$secret" "/proc/$process/environ" "/proc/$process/cmdline" || fail 'a process shows the secret' known.0.log
done
stop_node_zero
ends 143 "$master" known.0.log
ends 143 "$second" known.1.log
! grep -rqF "$secret" known known.?.log || fail 'the output has the secret' known.0.log
! grep -q 'without a secret' known.?.log || fail 'a warning without a reason' known.0.log
grep -q 'warning: without a secret' met.0.log || fail 'no warning' met.0.log
echo 'a secret keeps strangers out'

# A stranger through whom all goes that node 0 sends to node 1, or node 1 to node 0: he takes over the connections to the
# receiver's port, and changes what they carry once the run trains. The number DSTRAIN_SAMPLE chooses what he does.
takes_over() { # FROM TO PORT ACT...: what node FROM sends to a port of node TO goes through node3
  hosts_on node3 sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward
    for i in all eth0; do echo 0 >/proc/sys/net/ipv4/conf/$i/send_redirects; done'
  hosts_on node3 ip rule add iif eth0 from "$HOSTS_NETWORK.$1" ipproto tcp dport "$3" lookup 100
  hosts_on node3 ip route add local "$HOSTS_NETWORK.$2" dev lo table 100
  hosts_on "node$1" ip route add "$HOSTS_NETWORK.$2/32" via "$HOSTS_NETWORK.3"
  coproc hosts_on node3 python3 "$here/tools/middleman.py" "${@:3}"
  read -r _ <&"${COPROC[0]}"
}
nodes=3
between=(--steps 100000000 --secret_file secret --set train_batch_size=24)
choice=$((${DSTRAIN_SAMPLE:-$RANDOM} % 3))
node 0 between "${between[@]}"
if ((choice == 0)); then
  act=(inject '{"say":"stop","signal":15,"count":1}')
  takes_over 2 1 29500 "${act[@]}"
fi
node 1 between "${between[@]}"
hosts_wait_until 'node 1 has met node 0' grep -q 'has met node 0' between.1.log
if ((choice > 0)); then
  port=$(listens "$(hosts_pids node2 '--node_rank 1')" | cut -d: -f2)
  act=(flip)
  ((choice == 1)) || act=(inject '{"do":"stop","signal":15}')
  takes_over 1 2 "$port" "${act[@]}"
fi
node 2 between "${between[@]}"
third=$!
hosts_wait_until 'it trains' trains between.0.log
for process in $(hosts_pids node1 '--output between'); do
  ! grep -qszE '[0-9a-f]{64}' "/proc/$process/environ" || fail 'a process inherits keys' between.0.log
done
echo now >&"${COPROC[1]}"
ends 2 "$third" between.2.log
if ((choice == 0)); then
  grep -qE "warning: node 1 \(node2\) cannot be understood: a message that this connection's other end has not sent" \
    between.0.log || fail 'what a man in the middle says for node 1 goes unnoticed' between.0.log
  grep -q 'error: node2 was lost: ' between.0.log || fail 'the run does not end by it' between.0.log
else
  grep -qE "error: node2 was lost: .* node2 at port $port of $HOSTS_NETWORK.2 cannot be trusted: bytes arrived on it that its other end has not sent" \
    between.0.log || fail "what a man in the middle does goes unnoticed (${act[*]})" between.0.log
fi
hosts_wait_until 'nothing is left' hosts_idle node1 node2
echo "a man in the middle ends a run (${act[*]})"
