#!/usr/bin/env bash
# Tests restarts of a run on two hosts with two ranks each. After a rank was killed, the weights are bitwise those of an
# undisturbed run. With --elastic a run continues without a host that does not answer. The first run also tests the
# options that act on every host: logs of ranks, bound cores, and the chosen network and ports.
#   tests/hosts/restarts/restarts.sh DSTRAIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/training.sh"
(($(nproc) >= 2)) || hosts_skip 'two ranks of a host need two cores'
training_hosts "$1" 2
# The run has so many steps that it still trains while this script looks at its ranks after the first checkpoint.
options=(--steps 500 --save_interval 100)
training_reference "$dstrain" 0 "${options[@]}"

begun() { [[ -n $(compgen -G "$1/checkpoints/step_*[0-9]") ]]; }
steps_once() {
  [[ $(grep -c '"loss"' "$1/metrics.jsonl") == 500 ]] &&
    [[ $(grep -o '"step":[0-9]*' "$1/metrics.jsonl" | sort -u | wc -l) == 500 ]]
}

# Two usable cores: each host binds its two ranks to them.
usable=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status | tr ',' '\n' |
  while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done | head -n 2)
read -r -d '' core0 core1 <<<"$usable" || true

hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output killed "${options[@]}" --max_restarts 1 \
  --bind_core_list "$core0,$core1" --enable_each_rank_log "$HOSTS_OWN/logs" \
  --master_addr node1 --master_port 23400 >killed.log 2>&1 &
run=$!
hosts_wait_until 'there is a checkpoint' begun killed
for host in node1 node2; do
  cores=$(for rank in $(ranks_on "$host"); do sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$rank/status"; done | sort -n | xargs)
  [[ $cores == "$core0 $core1" ]] || fail "$host: its ranks run on cores $cores, not $core0 and $core1" killed.log
  # The ports at which other hosts can reach this one: those of listening sockets whose address is not 127.0.0.1,
  # without sshd's.
  ports=$(hosts_on "$host" awk '$4 == "0A" && $2 !~ /^0100007F|:0016$/ { print $2 }' /proc/net/tcp |
    sed 's/.*://' | while read -r port; do echo $((16#$port)); done | sort -n | xargs)
  [[ -n $ports ]] || fail "$host: nothing listens" killed.log
  for port in $ports; do
    ((port >= 23400 && port < 23464)) || fail "$host: something listens at port $port ($ports)" killed.log
  done
done
kill -KILL "$(ranks_on node2 | tail -n 1)"
wait "$run" || fail 'the run after a killed rank' killed.log
grep -q 'on node2) was killed by signal 9' killed.log && grep -q 'restart 1 of 1' killed.log ||
  fail 'the restart is not said' killed.log
same_weights 0 killed
steps_once killed || fail 'steps are missing, or there twice' killed.log
for rank in 0 1 2 3; do
  host=node$((rank / 2 + 1))
  [[ $(compgen -G "$host/own/logs/*_rank$rank.log" | wc -l) == 2 ]] ||
    fail "rank $rank: its logs of two starts are not on $host" <(ls ./*/own/logs)
done
echo 'logs, cores, network and ports are as they were asked for'

# A cache of token files that is damaged while the run trains ends it before its next checkpoint, and is made anew at the
# restart.
mkdir model
cp "$here/../data/tokenizer/golden/llama3.json" model/tokenizer.json
cat >model/config.json <<'END'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
 "vocab_size": 1000, "max_position_embeddings": 64}
END
tokens=("${options[@]}" --model model --init_weights random)
training_reference "$dstrain" 1 "${tokens[@]}"
hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output damaged "${tokens[@]}" --max_restarts 1 \
  --set zero_optimization.stage=1 >damaged.log 2>&1 &
run=$!
hosts_wait_until 'there is a checkpoint' begun damaged
printf '\001' | dd of=damaged/cache/text.txt.bin bs=1 seek=100 conv=notrunc status=none
wait "$run" || fail 'the run with a damaged cache' damaged.log
[[ $(grep -c 'made anew of' damaged.log) == 1 ]] || fail 'not one line about the cache' damaged.log
cmp one1/cache/text.txt.bin damaged/cache/text.txt.bin || fail 'the cache stays damaged' damaged.log
grep -q 'restart 1 of 1' damaged.log || fail 'the restart is not said' damaged.log
same_weights 1 damaged
steps_once damaged || fail 'steps are missing, or there twice' damaged.log
echo 'a cache that is damaged meanwhile is made anew at the restart'

hosts_on node1 "$dstrain" --hostfile hosts --config c.json --output elastic "${options[@]}" --max_restarts 1 \
  --elastic >elastic.log 2>&1 &
run=$!
hosts_wait_until 'there is a checkpoint' begun elastic
hosts_sshd node2 stop
wait "$run" || fail 'the run without node2' elastic.log
grep -q 'node2 is left out from now on: 2 ranks on 1 host' elastic.log || fail 'node2 is not left out' elastic.log
steps_once elastic || fail 'steps are missing, or there twice' elastic.log
[[ -e elastic/model.safetensors && -z $(ranks_on node2) ]] || fail 'it did not end well' elastic.log
hosts_wait_until 'no process is left on node1' hosts_idle node1
echo 'a run goes on without a host'
