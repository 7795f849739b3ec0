#!/usr/bin/env bash
# Tests runs that the user's own mpirun starts on two hosts with two ranks each: at every ZeRO stage the weights are
# bitwise those of four ranks on one host.
#   tests/hosts/mpirun_stages.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2
training_by_mpirun

received() { hosts_on node2 sed -n 's/^ *eth0: *\([0-9]*\) .*/\1/p' /proc/net/dev; }

for stage in 0 1 2 3; do
  before=$(received)
  training_reference "$dstrain" "$stage"
  hosts_on node1 "${by_mpirun[@]}" --config c.json --output "two$stage" --set "zero_optimization.stage=$stage" \
    >"two$stage.log" 2>&1 || fail "stage $stage on two hosts" "two$stage.log"
  same_weights "$stage" "two$stage"
  weights=$(stat -c %s "two$stage/model.safetensors")
  (($(received) - before > weights)) ||
    fail "stage $stage: node2 received less than the weights" "two$stage.log"
done
