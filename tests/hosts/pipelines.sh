#!/usr/bin/env bash
# Tests pipelines over two hosts with two ranks each, started from a hostfile and by the user's own mpirun: the weights
# are bitwise those of the same data-parallel ranks on one host without a pipeline.
#   tests/hosts/pipelines.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2
training_by_mpirun
model=(--set dstrain.model.n_layer=5 --set dstrain.reduce=micro_batch)

# reference RANKS: trains without a pipeline on one host, into the folder alone$RANKS.
reference() {
  hosts_on node1 "$dstrain" --config c.json --num_gpus "$1" --output "alone$1" "${model[@]}" >"alone$1.log" 2>&1 ||
    fail "$1 ranks without a pipeline" "alone$1.log"
}

# pipeline NAME RANKS COMMAND...: trains on both hosts, into the folder NAME, and compares with RANKS ranks alone.
pipeline() {
  local name=$1 ranks=$2
  hosts_on node1 "${@:3}" --config c.json --output "$name" "${model[@]}" >"$name.log" 2>&1 || fail "$name" "$name.log"
  cmp "alone$ranks/model.safetensors" "$name/model.safetensors" || fail "$name: other weights" "$name.log"
  hosts_wait_until "$name: no process is left" hosts_idle node1 node2
  echo "$name: the weights of data-parallel degree $ranks on one host"
}

reference 1
reference 2
by_hostfile=("$dstrain" --hostfile hosts)
# A stage on each host: all messages between stages cross the link.
for stage in 0 1 2 3; do
  pipeline "two_stages_zero_$stage" 2 "${by_hostfile[@]}" --pipeline_num_stages 2 \
    --set "zero_optimization.stage=$stage"
done
for schedule in gpipe 1f1b zb-h1; do
  pipeline "four_stages_$schedule" 1 "${by_hostfile[@]}" --pipeline_num_stages 4 --pipeline_schedule "$schedule"
done
for schedule in interleaved zb-v; do
  pipeline "two_stages_$schedule" 2 "${by_hostfile[@]}" --pipeline_num_stages 2 --pipeline_schedule "$schedule"
done
pipeline mpirun_two_stages 2 "${by_mpirun[@]}" --pipeline_num_stages 2 --set zero_optimization.stage=1
pipeline mpirun_four_stages 1 "${by_mpirun[@]}" --pipeline_num_stages 4
