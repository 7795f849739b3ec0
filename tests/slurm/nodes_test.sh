#!/usr/bin/env bash
# Tests dstrain in a Slurm of three nodes, which are hosts of tests/hosts/netns.sh: runs over two and three nodes have the
# weights of one machine, a requeued job and --resume too, a rank that is killed or stopped is named with its node, wrong
# input is one error, and one dstrain in a batch script starts its ranks on all nodes. The exit status is 77 if no Slurm
# can be started here.
#   nodes_test.sh DSTRAIN [LATE_RANK]     LATE_RANK: the library of tools/late_rank.cpp
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../hosts/training.sh"
source "$here/cluster.sh"
late_rank=${2:+$(realpath "$2")}
training_hosts "$1" 3 munged slurmctld slurmd sbatch srun ss
finish() {
  local status=$?
  if ((status != 0 && status != 77)); then tail -n 40 slurm/slurm*.log || true; fi
  stop_cluster
  hosts_down
}
trap finish EXIT
if ! start_host_cluster "$HOSTS_DIR/slurm" 3; then
  cat slurm/daemons.log slurm/slurm*.log
  hosts_skip 'Slurm does not start here'
fi

on_cluster() { hosts_on node1 "$@"; }
# has_once FILE PATTERN: fails unless exactly one line of the file matches.
has_once() { [[ $(grep -cE "$2" "$1") == 1 ]] || fail "not one line like '$2'" "$1"; }
has_lines() { (($(wc -l <"$1") >= $2)); }
job_is() { [[ $(on_cluster scontrol -o show job "$1") == *JobState=$2* ]]; }

options=(--set zero_optimization.stage=3 --set steps_per_print=100)
some=(--steps 60 --save_interval 20)
training_reference "$dstrain" 3 "${some[@]}"

# trains NAME OPTION_OF_SRUN...: trains in tasks of srun, and fails unless the weights are those of one machine.
trains() {
  on_cluster srun "${@:2}" "$dstrain" --config c.json --output "$1" "${options[@]}" "${some[@]}" >"$1.log" 2>&1 ||
    fail "$1" "$1.log"
  same_weights 3 "$1"
}
trains two --nodes=2 --ntasks-per-node=2
has_once two.log 'inside srun: 4 ranks, 2 of them on this machine$'
trains three --nodes=3 --ntasks=4
trains cyclic --nodes=2 --ntasks=4 --distribution=cyclic
# Rank 1, on the other node, is through MPI_Init before rank 0 takes messages.
if [[ -n $late_rank ]]; then
  trains late --nodes=2 --ntasks=4 --distribution=cyclic "--export=ALL,LD_PRELOAD=$late_rank,LATE_TASK=0"
fi

# batch NAME NODES OPTION LINE: submits a job whose script is LINE; its output is NAME.log. Prints its id.
batch() {
  printf '#!/bin/bash\n%s\n' "$4" >"$1.sh"
  on_cluster sbatch --parsable --requeue --open-mode=append --nodes="$2" "$3" --output="$1.log" "$1.sh"
}
line="$dstrain --config c.json ${options[*]}"

# One dstrain in a batch script starts ranks on all nodes.
id=$(batch inside 2 --ntasks-per-node=4 "$line --output inside --num_gpus 2 ${some[*]}")
wait_for 60 job_is "$id" COMPLETED || fail 'one dstrain in a batch script' inside.log
has_once inside.log "Slurm job $id: 4 ranks by srun on 2 nodes$"
same_weights 3 inside

# A job that is requeued in the middle, and begins with weights of a file.
on_cluster "$dstrain" --config c.json --steps 1 --output initial >initial.log 2>&1 || fail initial initial.log
long=(--steps 200 --save_interval 20)
initial=(--init_weights initial/model.safetensors)
on_cluster "$dstrain" --config c.json --num_gpus 4 --output begun "${options[@]}" "${long[@]}" "${initial[@]}" \
  >begun.log 2>&1 || fail begun begun.log
id=$(batch requeued 2 --ntasks=4 "srun $line --output requeued ${long[*]} ${initial[*]}")
wait_for 60 has_lines requeued/metrics.jsonl 45 || fail 'the job does not train' requeued.log
rm initial/model.safetensors
on_cluster scontrol requeue "$id"
wait_for 90 job_is "$id" COMPLETED || fail 'the requeued job' requeued.log
has_once requeued.log "Slurm job $id, requeued 1 time: continues from step [1-9][0-9]* of requeued$"
cmp begun/model.safetensors requeued/model.safetensors || fail 'requeued: other weights' requeued.log
echo 'a requeued job has the weights of an undisturbed run'

# rank_of NODE NAME: prints one of the processes on a host that are ranks of the run NAME.
rank_of() {
  local process
  for process in $(hosts_pids "$1" "--output $2 "); do
    [[ $(readlink "/proc/$process/exe") != "$dstrain" || $(<"/proc/$process/comm") != dstrain ]] || echo "$process"
  done | sed -n 1p
}
# disturbed NAME SIGNAL PATTERN: sends a signal to a rank on node2 of a job on three nodes, and fails unless the job ends
# with one error that matches, and leaves nothing.
disturbed() {
  local id
  id=$(batch "$1" 3 --ntasks=4 "srun $line --output $1 --steps 100000000")
  wait_for 60 has_lines "$1/metrics.jsonl" 10 || fail "$1 does not train" "$1.log"
  kill "-$2" "$(rank_of node2 "$1")"
  wait_for 60 job_is "$id" FAILED || fail "$1 goes on" "$1.log"
  has_once "$1.log" "dstrain: error: $3"
  local node
  for node in node1 node2 node3; do
    hosts_wait_until "no rank is left on $node" eval "[[ -z \$(hosts_pids $node '--output $1 ') ]]"
  done
  grep -E 'dstrain: error: ' "$1.log"
}
disturbed killed KILL 'rank [0-3] \(pid [0-9]+ on node2\) (was killed by signal 9|ended unexpectedly)'
disturbed stopped STOP 'rank [0-3] \(pid [0-9]+ on node2\) is stopped'

# --resume on other nodes.
on_cluster srun --nodes=3 --ntasks=4 "$dstrain" --config c.json "${options[@]}" --resume two/checkpoints/step_20 \
  --output resumed --steps 60 >resumed.log 2>&1 || fail resumed resumed.log
same_weights 3 resumed

# Wrong input on one node is one error.
for node in 1 2 3; do cp c.json "node$node/own/c.json"; done
echo '{' >node2/own/c.json
status=0
on_cluster srun --nodes=2 --ntasks=4 "$dstrain" --config "$HOSTS_OWN/c.json" --output wrong >wrong.log 2>&1 || status=$?
((status == 1)) || fail "wrong input ends with $status" wrong.log
has_once wrong.log 'dstrain: error: '
grep 'dstrain: error: ' wrong.log
echo 'all well'
