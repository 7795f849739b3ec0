#!/usr/bin/env bash
# Tests runs with a hostfile of two hosts with two ranks each: at every ZeRO stage the weights are bitwise those of four
# ranks on one host, and nothing is left behind. Hosts that are not ready are reported before anything starts.
#   tests/hosts/hostfile_stages.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
renice -n "$(($(nice) + 2))" -p $$ >/dev/null  # ranks add their niceness to that of the run
training_hosts "$1" 2

hosts_on node1 "$dstrain" doctor --hostfile hosts --config c.json >doctor.log 2>&1 || fail doctor doctor.log
grep -q '^node2: dstrain .* 2 ranks' doctor.log || fail 'doctor does not tell about node2' doctor.log
tail -n 1 doctor.log | grep -q '^ready for 4 ranks on 2 hosts' || fail 'doctor gives no verdict' doctor.log

for stage in 0 1 2 3; do
  training_reference "$dstrain" "$stage"
  hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output "two$stage" \
    --set "zero_optimization.stage=$stage" >"two$stage.log" 2>&1 || fail "stage $stage" "two$stage.log"
  same_weights "$stage" "two$stage"
  hosts_wait_until 'no process is left' hosts_idle node1 node2
done

# Experts that the ranks of both hosts divide: the weights are those of ranks on one host that have all experts each.
model='{"type": "mixtral", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, '
model+='"num_key_value_heads": 2, "num_local_experts": 8, "max_position_embeddings": 32}'
sed "s/\"model\": {[^}]*}/\"model\": $model/" c.json >experts.json
hosts_on node1 "$dstrain" --config experts.json --num_gpus 4 --output one_experts >one_experts.log 2>&1 ||
  fail 'experts on one host' one_experts.log
for ranks in 2 4; do
  hosts_on node1 "$dstrain" --hostfile hosts --config experts.json --output "experts$ranks" --set expert_parallel.enabled=true \
    --set "expert_parallel.autoep_size=$ranks" >"experts$ranks.log" 2>&1 || fail "$ranks expert ranks" "experts$ranks.log"
  cmp one_experts/model.safetensors "experts$ranks/model.safetensors" ||
    fail "$ranks expert ranks: other weights" "experts$ranks.log"
done
echo 'ranks of two hosts divide experts, and have the weights of ranks that do not'

# A run without --output takes a directory for all hosts, beside that of a finished run. Its own settings are enough to go
# on with it.
for name in c c-2; do
  hosts_on node1 "$dstrain" --hostfile hosts --config c.json --steps 2 --set dstrain.save_last=true >"$name.log" 2>&1 ||
    fail "a run in runs/$name" "$name.log"
  grep -q "results in runs/$name\$" "$name.log" || fail "no run in runs/$name" "$name.log"
done
hosts_on node1 "$dstrain" --hostfile hosts --resume runs/c-2 --steps 5 >alone.log 2>&1 || fail 'a resume' alone.log
cmp one0/model.safetensors runs/c-2/model.safetensors || fail 'other weights after a resume' alone.log
echo 'runs without --output have a directory each, and are resumed with their own settings'

# Each host says what its ranks put on its drive.
hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output nvme --set zero_optimization.stage=3 \
  --set zero_optimization.offload_optimizer.device=nvme \
  --set "zero_optimization.offload_optimizer.nvme_path=$HOSTS_OWN/drive" >nvme.log 2>&1 || fail 'state on drives' nvme.log
same_weights 3 nvme
for mark in '' '\[rank 2\] '; do
  grep -qE "^${mark}nvme: [0-9.]+ [kM]B of 2 ranks in $HOSTS_OWN/drive on .+, mounted at /" nvme.log ||
    fail "no line of '$mark' about its drive" nvme.log
done

# A signal ends the run after its step, on both hosts.
hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output stopped --steps 100000 >stopped.log 2>&1 &
run=$!
hosts_wait_until 'three steps are done' grep -q '^step=3 ' stopped.log
# While a run lives, no other run can use its output directory.
status=0
hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output stopped --overwrite >second.log 2>&1 || status=$?
((status == 1)) && grep -q 'dstrain: error: the output directory stopped is in use by another run (pid ' second.log ||
  fail "a second run in a directory in use: status $status" second.log
# Agents have a higher priority than ranks, so that they can report while ranks keep all cores busy.
for process in $(hosts_pids node2 "$dstrain"); do
  words=$(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline") || continue
  case "$words" in
    "$dstrain host_agent "*) expected=$(nice) ;;
    "$dstrain --hostfile"*) expected=$(($(nice) + 5)) ;;
    *) continue ;;
  esac
  niceness=$(ps -o ni= -p "$process") || continue
  ((niceness == expected)) || fail "niceness $niceness of $words" stopped.log
done
kill -TERM "$(launcher_on node1)"
status=0
wait "$run" || status=$?
((status == 143)) && [[ -e stopped/model.safetensors ]] || fail "SIGTERM: status $status" stopped.log

# A run on several hosts draws its live line on a terminal.
hosts_on node1 script -qec "'$dstrain' --hostfile hosts --config c.json --output shown" /dev/null >shown.log </dev/null ||
  fail 'a run on a terminal' shown.log
grep -qE 'step [0-9]/5 \| ' shown.log || fail 'no live line' shown.log
echo 'a terminal shows the live line'

# A host that does not answer is reported.
status=0
hosts_link node2 down
hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output no >silent.log 2>&1 || status=$?
hosts_link node2 up
((status == 1)) && grep -q '1 of 2 hosts is not ready:' silent.log && grep -q '^  node2  ssh ' silent.log ||
  fail "a silent host: status $status" silent.log
echo "hosts that are not ready are told"
