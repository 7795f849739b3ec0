#!/usr/bin/env bash
# Tests a launching process that is suspended (Ctrl-Z) for longer than dstrain.silence_s. It does not count as lost:
# the run continues and ends normally. If its machine is then cut off from the network, it does count as lost.
#   tests/hosts/suspended.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2 python3

starts() { # NAME
  hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output "$1" --steps 1000000 \
    --set dstrain.silence_s=3 >"$1.log" 2>&1 &
  run=$!
  hosts_wait_until 'the run has begun' grep -q '^step=1 ' "$1.log"
  launcher=$(launcher_on node1)
}
# seconds_of RUN FROM: prints the seconds that the steps from line FROM of metrics.jsonl on took together.
seconds_of() {
  tail -n "+$2" "$1/metrics.jsonl" | python3 -c 'import json, sys
print(int(sum(json.loads(l).get("step_ms", 0) for l in sys.stdin if l.endswith("\n")) / 1000))'
}
went_on() { (($(seconds_of "$1" "$2") >= 5)); }
# Continues the launching process and nsenter, which stops when the process that it has started is stopped.
continues() { kill -CONT "$launcher" $(<"/proc/$run/task/$run/children"); }

starts suspended
kill -STOP "$launcher"
line=$(wc -l <suspended/metrics.jsonl)
hosts_wait_until 'the ranks went on for longer than the limit' went_on suspended "$line"
lines=$(wc -l <suspended.log)
continues
more() { (($(wc -l <suspended.log) > lines + 10)); }
hosts_wait_until 'the launching process goes on' more
kill -TERM "$launcher"
status=0
wait "$run" || status=$?
((status == 143)) && [[ -e suspended/model.safetensors ]] && ! grep -q 'dstrain: error' suspended.log ||
  fail "a suspended launcher: status $status" suspended.log
echo 'a suspended launching process ends nothing'

starts gone
kill -STOP "$launcher"
hosts_link node2 down
hosts_wait_until 'nothing is left on the host that cannot reach it' hosts_idle node2
hosts_link node2 up
continues
status=0
wait "$run" || status=$?
((status == 2)) && grep -q 'node2 was lost' gone.log || fail "a cable that is pulled meanwhile: status $status" gone.log
echo 'a machine that is gone is lost'
