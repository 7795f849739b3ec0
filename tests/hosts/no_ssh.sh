#!/usr/bin/env bash
# Tests runs on hosts without ssh, where the user gives the command on each host: the weights are those of one host,
# node 0 refuses a node with other options and says why, wrong input ends both with status 1, and a stopped rank ends the run on both hosts.
#   tests/hosts/no_ssh.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
hosts_need_or_skip mpirun
dstrain=$(realpath "$1")

hosts_up 2
cd "$HOSTS_DIR"
for host in node1 node2; do hosts_sshd "$host" stop; done
training_files
training_reference "$dstrain" 0

# node RANK NAME [OPTION...]: starts a node of a run on its host, in the background.
node() {
  hosts_on "node$(($1 + 1))" "$dstrain" --config c.json --num_gpus 2 --output "$2" --no_ssh \
    --node_rank "$1" --master_addr "$HOSTS_NETWORK.1" "${@:3}" >"$2.$1.log" 2>&1 &
}
# ends STATUS PROCESS LOG: waits for a process, and fails unless its exit status is STATUS.
ends() {
  local status=0
  wait "$2" || status=$?
  ((status == $1)) || fail "exit status $status, not $1" "$3"
}
said() { grep -qE "$1" "$2" || fail "$2 does not say '$1'" "$2"; }
# ranks_on NODE: prints the processes on a host that are ranks.
ranks_on() {
  local process
  for process in $(hosts_pids "$1" --output); do
    [[ $(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ") != *OMPI_COMM_WORLD_RANK=* ]] || echo "$process"
  done
}
nothing_on() { [[ -z $(hosts_pids "$1") ]]; }

node 1 two --nnodes 2
second=$!
node 0 two --nnodes 2
ends 0 $! two.0.log
ends 0 "$second" two.1.log
same_weights 0 two
for host in node1 node2; do hosts_wait_until "nothing is left on $host" nothing_on "$host"; done

# Each node reads the settings of the run that is resumed.
resumes() {
  hosts_on "node$(($1 + 1))" "$dstrain" --resume half --num_gpus 2 --steps 5 --no_ssh --nnodes 2 --node_rank "$1" \
    --master_addr "$HOSTS_NETWORK.1" >"resumed.$1.log" 2>&1 &
}
node 1 half --nnodes 2 --steps 2 --set dstrain.save_last=true
second=$!
node 0 half --nnodes 2 --steps 2 --set dstrain.save_last=true
ends 0 $! half.0.log
ends 0 "$second" half.1.log
resumes 1
second=$!
resumes 0
ends 0 $! resumed.0.log
ends 0 "$second" resumed.1.log
said 'resumed after step 2' resumed.0.log
cmp two/model.safetensors half/model.safetensors || fail 'other weights after a resume' resumed.0.log

node 0 misfit --nnodes 2
master=$!
hosts_wait_until 'node 0 waits' grep -q 'waits at port' misfit.0.log
node 1 misfit --nnodes 3
ends 1 $! misfit.1.log
said 'error: node 0 refuses this node: --nnodes is 2 on node 0$' misfit.1.log
kill -TERM "$(hosts_pids node1 misfit)"
wait "$master" || true
hosts_wait_until 'nothing is left on node1' nothing_on node1

node 1 refused --nnodes 2
second=$!
node 0 refused --nnodes 2 --set optimizer.type=none
ends 1 $! refused.0.log
ends 1 "$second" refused.1.log
said 'the run ended with status 1; node 0 says why' refused.1.log

node 0 stopped --nnodes 2 --steps 100000000
master=$!
node 1 stopped --nnodes 2 --steps 100000000
second=$!
hosts_wait_until 'it trains' grep -q 'step=3 ' stopped.0.log
mapfile -t victims < <(ranks_on node2)
kill -STOP "${victims[0]}"
ends 2 "$master" stopped.0.log
said 'error: rank [23] \(pid [0-9]+ on node2\) is stopped' stopped.0.log
ends 2 "$second" stopped.1.log
said 'the run ended with status 2; node 0 says why' stopped.1.log
for host in node1 node2; do hosts_wait_until "nothing is left on $host" nothing_on "$host"; done
echo 'hosts without ssh: the same weights, the same faults'
