#!/usr/bin/env bash
# Tests restarts of runs on hosts with every kind of input: the weights of a model from a folder, adapters and the first
# weights of adapters, a file of weights, texts and chats for a tokenizer, a chat template, a graph that PyTorch has exported with
# arrays. Ranks start in every way that can be restarted.
# After a rank was killed, the weights are bitwise those of an undisturbed run on one host. Where the input has changed
# since the run began, a restart is refused. restarts.sh has what else a restart keeps.
#   tests/hosts/restarts/restart_inputs.sh DSTRAIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../training.sh"
(($(nproc) >= 2)) || hosts_skip 'two ranks of a host need two cores'
training_hosts "$1" 2

mkdir fresh
cp "$here/../../data/tokenizer/golden/llama3.json" fresh/tokenizer.json
cat >fresh/config.json <<'END'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
 "vocab_size": 1000, "max_position_embeddings": 64}
END
cat >fresh/tokenizer_config.json <<'END'
{"eos_token": "<|end_of_text|>",
 "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"}
END
for ((i = 0; i < 200; ++i)); do
  echo '{"messages": [{"role": "user", "content": "the fox?"}, {"role": "assistant", "content": "the quick brown fox"}]}'
done >chats.jsonl
echo '{% for m in messages %}{{ m.role }} said: {{ m.content }}<|eot_id|>{% endfor %}' >own.jinja

# begins NAME OPTION...: trains one step, into the folder NAME.
begins() {
  hosts_on node1 "$dstrain" --config c.json --steps 1 --output "$@" >"$1.log" 2>&1 || fail "$1" "$1.log"
}
begins model --model fresh --init_weights random
lora=(--set dstrain.lora.r=4 --set dstrain.data.seq_len=16)
begins adapter --model model "${lora[@]}" --data chats.jsonl
begins gptlite

steps=(--steps 200 --save_interval 20 --set steps_per_print=100)
# reference NAME OPTION...: trains undisturbed with four ranks on one host, into the folder one_NAME.
reference() {
  hosts_on node1 "$dstrain" --config c.json --num_gpus 4 --output "one_$1" "${steps[@]}" "${@:2}" >"one_$1.log" 2>&1 ||
    fail "one_$1" "one_$1.log"
}
has_checkpoint() { [[ -n $(compgen -G "$1/checkpoints/step_*[0-9]") ]] || has_ended "$2"; }
trains() { [[ -s $1/metrics.jsonl ]] || has_ended "$2"; }
has_ended() { ! kill -0 "$1"; }
# rank_of NODE NAME: prints one of the processes on a host that are ranks of the run NAME.
rank_of() {
  local process
  for process in $(hosts_pids "$1" "--output $2 "); do
    [[ $(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ") != *OMPI_COMM_WORLD_RANK=* ]] || echo "$process"
  done | tail -n 1
}
# disturbs NAME NODE PROCESS: kills a rank of the run NAME once it has a checkpoint, and waits for the run's end. Sets
# $status.
disturbs() {
  local rank
  hosts_wait_until "$1 trains" trains "$1" "$3"
  rank=$(rank_of "$2" "$1")
  hosts_wait_until "$1 has a checkpoint" has_checkpoint "$1" "$3"
  [[ ! -e $1.changes ]] || bash "$1.changes"
  [[ -z $rank ]] || kill -KILL "$rank"
  status=0
  wait "$3" || status=$?
}
# restarts NAME REFERENCE NODE PROCESS: kills a rank, and fails unless the run ends with the weights of the reference.
restarts() {
  disturbs "$1" "$3" "$4"
  ((status == 0)) || fail "$1: exit status $status" "$1.log"
  grep -q "restart 1 of 1 in 1 s, from its checkpoint of step [1-9]" "$1.log" || fail "$1 was not restarted" "$1.log"
  local file=model.safetensors
  [[ -e $1/$file ]] || file=adapter_model.safetensors
  cmp "one_$2/$file" "$1/$file" || fail "$1: other weights" "$1.log"
  echo "$1: after a restart it has the weights of an undisturbed run"
}
run() { # NAME OPTION...: starts a run on node1 with the configuration $config, in the background
  hosts_on node1 "$dstrain" --config "$config" --output "$1" "${steps[@]}" --max_restarts 1 "${@:2}" >"$1.log" 2>&1 &
}

config=c.json
whole=(--model model)
reference whole "${whole[@]}"
run whole --hostfile hosts "${whole[@]}"
restarts whole whole node2 $!

adapted=(--model model "${lora[@]}" --set dstrain.lora.init=adapter --data chats.jsonl --set dstrain.data.chat_template=own.jinja)
reference adapted "${adapted[@]}"
run adapted --hostfile hosts --elastic "${adapted[@]}"
restarts adapted adapted node2 $!
exported=$(cd "$here/../../golden/exported/tokens" && pwd)
graph=(--model "$exported/model.pt2" --data "$exported/data.safetensors" --set dstrain.data.format=arrays
  --set dstrain.data.val_fraction=0 --set dstrain.eval_interval=0 --set zero_optimization.stage=3)
reference graph "${graph[@]}"
run graph --hostfile hosts "${graph[@]}"
restarts graph graph node2 $!
# On one machine, by mpirun.
run here --launcher openmpi --num_gpus 4 "${adapted[@]}"
restarts here adapted node1 $!

file=(--init_weights gptlite/model.safetensors)
reference file "${file[@]}"
node() { # RANK: starts a node of a run without ssh, in the background
  hosts_on "node$(($1 + 1))" "$dstrain" --config c.json --num_gpus 2 --output nodes --no_ssh --nnodes 2 --node_rank "$1" \
    --master_addr "$HOSTS_NETWORK.1" "${steps[@]}" --max_restarts 1 "${file[@]}" >"$2" 2>&1 &
}
node 1 nodes.1.log
second=$!
node 0 nodes.log
restarts nodes file node2 $!
wait "$second" || fail 'node 1' nodes.1.log

# refuses NAME FILE: fails unless a run is not restarted after the file has changed.
refuses() {
  disturbs "$1" node2 $!
  ((status == 1)) || fail "$1: exit status $status" "$1.log"
  [[ $(grep -c 'dstrain: error: ' "$1.log") == 1 ]] &&
    grep -qE "dstrain: error: .*$2 (has|have) changed since the run began, and a restart would go on" "$1.log" ||
    fail "$1: not refused" "$1.log"
  echo "$1: $(grep 'dstrain: error: ' "$1.log")"
}
cp c.json other.json
config=other.json
run config --hostfile hosts
echo "sed -i 's/1e-3/2e-3/' other.json" >config.changes
refuses config other.json
config=c.json
cp text.txt other.txt
run text --hostfile hosts "${whole[@]}" --data other.txt
echo 'echo more >>other.txt' >text.changes
refuses text 'other.txt, text/cache/other.txt.bin'
cp own.jinja other.jinja
run template --hostfile hosts --elastic "${adapted[@]}" --set dstrain.data.chat_template=other.jinja
echo "sed -i 's/said/says/' other.jinja" >template.changes
refuses template other.jinja
for host in node1 node2; do hosts_wait_until "no process is left on $host" hosts_idle "$host"; done
