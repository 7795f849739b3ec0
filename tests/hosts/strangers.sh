#!/usr/bin/env bash
# Tests runs while a stranger, a third host of their network, connects to their ports and sends what no process of a run
# does: the runs go on, their memory and open files stay as they are, and no word of a stranger gets into a command.
#   tests/hosts/strangers.sh DSTRAIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/training.sh"
training_hosts "$1" 3 python3
training_by_mpirun

# stranger NODE PORT ACT...: what a stranger does at a port of a host.
stranger() { hosts_on node3 python3 "$here/tools/stranger.py" "$HOSTS_NETWORK.${1#node}" "${@:2}"; }

# listens PROCESS: prints the TCP port at which a process listens.
listens() {
  local inode
  for inode in $(find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n'); do
    awk -v inode="$inode" '$4 == "0A" && $10 == inode { split($2, a, ":"); print a[2] }' "/proc/$1/net/tcp"
  done | while read -r port; do echo $((16#$port)); done
}

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
  port=$(listens "$2")
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

# The watchers of the user's own mpirun.
hosts_on node1 "${by_mpirun[@]}" --config c.json --output watched --steps 100000000 >watched.log 2>&1 &
mpirun=$!
hosts_wait_until 'it trains' trains watched.log
molest node1 "$(hosts_pids node1 host_watch)" 'the watcher' watched.log
kill -KILL "$(hosts_pids node2 '--output watched' | head -1)"
wait "$mpirun" || true
grep -qE 'dstrain: error: rank [0-3] \(pid [0-9]+ on node2\) (was killed|ended)' watched.log ||
  fail 'the watcher does not see a killed rank any more' watched.log

# Nodes that are started by hand.
node() {
  hosts_on "node$(($1 + 1))" "$dstrain" --config c.json --num_gpus 2 --output "$2" --no_ssh --nnodes 2 \
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
