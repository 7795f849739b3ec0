#!/usr/bin/env bash
# A user's own mpirun over two hosts, two ranks on each: at every ZeRO stage the weights are bitwise
# those of four ranks on one host.
#   tests/hosts/mpirun_stages.sh DSTRAIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/netns.sh"
source "$here/training.sh"
hosts_need_or_skip mpirun
dstrain=$(realpath "$1")

hosts_up 2
cd "$HOSTS_DIR"
training_files
hosts_file 2 2 >hosts
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export OMP_WAIT_POLICY=passive

received() { hosts_on node2 sed -n 's/^ *eth0: *\([0-9]*\) .*/\1/p' /proc/net/dev; }

for stage in 0 1 2 3; do
  before=$(received)
  training_reference "$dstrain" "$stage"
  hosts_on node1 mpirun --hostfile hosts -np 4 --bind-to none -x OMP_NUM_THREADS -x OMP_WAIT_POLICY \
    "$dstrain" --config c.json --output "two$stage" --set "zero_optimization.stage=$stage" \
    >"two$stage.log" 2>&1 || fail "stage $stage on two hosts" "two$stage.log"
  same_weights "$stage" "two$stage"
  weights=$(stat -c %s "two$stage/model.safetensors")
  (($(received) - before > weights)) ||
    fail "stage $stage: node2 received less than the weights" "two$stage.log"
done
