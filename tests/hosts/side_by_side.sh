#!/usr/bin/env bash
# Tests two runs at the same time on the same two hosts, on cores that other processes keep busy as well. Both
# succeed, with the weights of a run alone. Their eight ranks share the cores and wait for each other, so that the
# runs are slow, but no rank is taken for hung or lost.
#   tests/hosts/side_by_side.sh DSTRAIN [--times N]     --times: the number of pairs of runs (default: 1)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
hosts_need_or_skip mpirun
dstrain=$(realpath "$1")
times=1
[[ ${2:-} != --times ]] || times=$3

load=()
hosts_up 2
trap '((${#load[@]} == 0)) || kill "${load[@]}"; hosts_down' EXIT
cd "$HOSTS_DIR"
training_files
hosts_file 2 2 >hosts
training_reference "$dstrain" 2 --steps 60

for ((i = 0; i < 2; ++i)); do
  while true; do :; done &
  load+=($!)
done

for ((i = 0; i < times; ++i)); do
  runs=()
  for name in left right; do
    hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output "$name" --overwrite --steps 60 \
      --set zero_optimization.stage=2 >"$name.log" 2>&1 &
    runs+=($!)
  done
  for name in left right; do
    status=0
    wait "${runs[0]}" || status=$?
    runs=("${runs[@]:1}")
    ((status == 0)) || fail "pair $i: the $name run ended with status $status" "$name.log"
    same_weights 2 "$name"
  done
done
