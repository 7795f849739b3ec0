#!/usr/bin/env bash
# Tests runs on hosts whose drive for temporary files is full after they have begun: ranks that share a layer go on, and save
# when they are stopped. The memory that ranks of a host share by Open MPI has its room from the start.
#   tests/hosts/full_drive.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2
export TMPDIR=$HOSTS_OWN/tmp
for host in node1 node2; do
  mkdir "$host/own/tmp"
  hosts_on "$host" mount -t tmpfs -o size=64m tmpfs "$TMPDIR"
done
trains() { (($(grep -c '^step=' log) >= 3)); }
hosts_on node1 "$dstrain" --hostfile hosts --config c.json --set tensor_parallel.autotp_size=2 --set dstrain.save_last=true \
  --steps 100000000 --output out >log 2>&1 &
job=$!
hosts_wait_until 'the run trains' trains
for host in node1 node2; do
  hosts_on "$host" bash -c 'cat /dev/zero >"$0/taken" 2>/dev/null || true' "$TMPDIR"
done
kill -TERM "$(launcher_on node1)"
status=0
wait $job || status=$?
((status == 143)) || fail "exit status $status" log
[[ -n $(compgen -G 'out/checkpoints/step_*[0-9]') && -s out/model.safetensors ]] || fail 'nothing is saved' log
echo "stopped and saved: $(tail -n 1 log)"
