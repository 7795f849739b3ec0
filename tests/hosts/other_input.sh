#!/usr/bin/env bash
# Tests runs on two hosts of which one has another configuration or other data. If the user's own mpirun starts the
# ranks, they find the difference themselves; with a hostfile the launching process finds it, with --no_ssh_check too.
# Nothing is trained, and one error says what differs on which host. Where the hosts have the same text for the model's
# tokenizer, one process makes its token file, in the output directory that they share; runs of answers have the references of
# one host, and those that learn of a teacher its values.
#   tests/hosts/other_input.sh DSTRAIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/training.sh"
training_hosts "$1" 2
training_by_mpirun

# refused NAME PATTERN COMMAND...: fails unless the run ends with one error that matches, before it trains.
refused() {
  local name=$1 pattern=$2 status=0
  shift 2
  hosts_on node1 "$@" >"$name.log" 2>&1 || status=$?
  ((status == 1)) || fail "$name: exit status $status" "$name.log"
  [[ $(grep -c 'dstrain: error: ' "$name.log") == 1 ]] || fail "$name: not one error" "$name.log"
  grep -qE "$pattern" "$name.log" || fail "$name: not '$pattern'" "$name.log"
  ! grep -q 'step=' "$name.log" || fail "$name: it trains" "$name.log"
  echo "$name: $(grep 'dstrain: error: ' "$name.log")"
}

# Each host has files of its own under the same name.
for host in node1 node2; do
  cp text.txt "$host/own/text.txt"
  cp c.json "$host/own/c.json"
done
sed -i 's/"lr": 1e-3/"lr": 2e-3/' node2/own/c.json
echo more >>node2/own/text.txt

other='^dstrain: error: ranks 2-3 on node2 would compute another run than rank 0 on node1: '
refused mpirun_configuration "${other}optimizer\.params\.lr: 0\.002 there, 0\.001 here\$" \
  "${by_mpirun[@]}" --config "$HOSTS_OWN/c.json" --output out
refused mpirun_data "${other}data \(text\.txt\): [0-9]+ bytes, .* there, [0-9]+ bytes, .* here\$" \
  "${by_mpirun[@]}" --config c.json --data "$HOSTS_OWN/text.txt" --output out
refused configuration '^  node2 +input +.*c\.json is not the same there as here' \
  "$dstrain" --hostfile hosts --no_ssh_check --config "$HOSTS_OWN/c.json" --output out
refused data '^  node2 +input +.*text\.txt is not the same there as here' \
  "$dstrain" --hostfile hosts --no_ssh_check --config c.json --data "$HOSTS_OWN/text.txt" --output out

# A text that the model's tokenizer makes tokens of.
mkdir model
cp "$here/../data/tokenizer/golden/llama3.json" model/tokenizer.json
cat >model/config.json <<'END'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
 "vocab_size": 1000, "max_position_embeddings": 64}
END
options=(--config c.json --model model --init_weights random)
training_reference "$dstrain" 0 --model model --init_weights random

# tokenized NAME COMMAND...: fails unless one process of the run makes the token file, and the run has the weights of the
# reference.
tokenized() {
  local name=$1
  shift
  hosts_on node1 "$@" "${options[@]}" --output "$name" >"$name.log" 2>&1 || fail "$name" "$name.log"
  [[ $(grep -c 'tokenized into' "$name.log") == 1 ]] || fail "$name: not one line about the tokens" "$name.log"
  cmp one0/cache/text.txt.bin "$name/cache/text.txt.bin" || fail "$name: other tokens" "$name.log"
  same_weights 0 "$name"
}
tokenized hostfile "$dstrain" --hostfile hosts
tokenized mpirun "${by_mpirun[@]}"
# The cache of the run before, damaged at its size, is not used.
cp -r hostfile damaged
printf '\001' | dd of=damaged/cache/text.txt.bin bs=1 seek=40 conv=notrunc status=none
tokenized damaged "$dstrain" --hostfile hosts --overwrite
[[ $(grep -c 'made anew of' damaged.log) == 1 ]] || fail 'damaged: not one line about the cache' damaged.log
# Copies of a text are that text, whenever they were made; another one is not.
for host in node1 node2; do
  cp text.txt "$host/own/text.txt"
  touch -d "2026-01-0${host#node}" "$host/own/text.txt"
done
tokenized copies "$dstrain" --hostfile hosts --data "$HOSTS_OWN/text.txt"
echo more >>node2/own/text.txt
refused text '^  node2 +input +.*has not been made of the text .*text\.txt that is here' \
  "$dstrain" --hostfile hosts "${options[@]}" --data "$HOSTS_OWN/text.txt" --output other

# What the first weights give to answers is measured by the ranks of all hosts, once, for the output directory that they share.
echo '{"eos_token": "<|end_of_text|>"}' >model/tokenizer_config.json
for i in {1..40}; do
  echo "{\"prompt\": \"the fox $i\", \"chosen\": \" jumps over it\", \"rejected\": \" sleeps\"}" >>pairs.jsonl
  echo "{\"prompt\": \"the fox $i\", \"completion\": \" jumps $i\", \"label\": $( ((i % 3)) && echo true || echo false)}" >>rated.jsonl
done
# answers OBJECTIVE DATA: fails unless runs on both hosts have the references and the weights of one host.
answers() {
  local words=("${options[@]}" --data "$2" --set "dstrain.objective.type=$1" --set zero_optimization.stage=1) run
  hosts_on node1 "$dstrain" "${words[@]}" --num_gpus 4 --output "$1_one" >"$1_one.log" 2>&1 || fail "$1" "$1_one.log"
  for run in hostfile mpirun; do
    local command=("$dstrain" --hostfile hosts)
    if [[ $run == mpirun ]]; then command=("${by_mpirun[@]}"); fi
    hosts_on node1 "${command[@]}" "${words[@]}" --output "$1_$run" >"$1_$run.log" 2>&1 || fail "$1: $run" "$1_$run.log"
    [[ $(grep -c 'of them measured' "$1_$run.log") == 1 ]] || fail "$1: $run: not one pass" "$1_$run.log"
    cmp "$1_one/cache/references.bin" "$1_$run/cache/references.bin" || fail "$1: $run: other references" "$1_$run.log"
    cmp "$1_one/model.safetensors" "$1_$run/model.safetensors" || fail "$1: $run: other weights" "$1_$run.log"
  done
  hosts_on node1 "$dstrain" --hostfile hosts "${words[@]}" --overwrite --output "$1_mpirun" >"$1_again.log" 2>&1 ||
    fail "$1: again" "$1_again.log"
  ! grep -q 'of them measured' "$1_again.log" || fail "$1: measured again" "$1_again.log"
  cmp "$1_one/model.safetensors" "$1_mpirun/model.safetensors" || fail "$1: again: other weights" "$1_again.log"
  echo "$1: two hosts have the references and the weights of one"
}
answers dpo pairs.jsonl
answers kto rated.jsonl

# A model with a score has no references.
rewards=("${options[@]}" --data pairs.jsonl --set dstrain.objective.type=reward --set zero_optimization.stage=3)
hosts_on node1 "$dstrain" "${rewards[@]}" --num_gpus 4 --output rewards_one >rewards_one.log 2>&1 || fail reward rewards_one.log
hosts_on node1 "$dstrain" --hostfile hosts "${rewards[@]}" --output rewards >rewards.log 2>&1 || fail reward rewards.log
cmp rewards_one/model.safetensors rewards/model.safetensors || fail 'reward: other weights' rewards.log
echo 'reward: two hosts have the weights of one'

# What a teacher gives to the tokens of a file is beside the file on each host.
hosts_on node1 "$dstrain" teach --run one0 --data one0/cache/text.txt.bin --seq_len 8 --top_k 4 --output values >teach.log 2>&1 ||
  fail teach teach.log
for host in node1 node2; do
  cp one0/cache/text.txt.bin "$host/own/taught.bin"
  cp values "$host/own/taught.bin.teacher"
done
taught=("${options[@]}" --data "$HOSTS_OWN/taught.bin" --set dstrain.objective.type=distill --set dstrain.objective.teacher_top_k=4
  --set dstrain.data.seq_len=8 --set zero_optimization.stage=1)
hosts_on node1 "$dstrain" "${taught[@]}" --num_gpus 4 --output taught_one >taught_one.log 2>&1 || fail distill taught_one.log
hosts_on node1 "$dstrain" --hostfile hosts "${taught[@]}" --output taught >taught.log 2>&1 || fail distill taught.log
cmp taught_one/model.safetensors taught/model.safetensors || fail 'distill: other weights' taught.log
hosts_on node1 "${by_mpirun[@]}" "${taught[@]}" --output taught_mpirun >taught_mpirun.log 2>&1 || fail distill taught_mpirun.log
cmp taught_one/model.safetensors taught_mpirun/model.safetensors || fail 'distill: other weights' taught_mpirun.log
echo 'distill: two hosts have the weights of one'
printf '\001' | dd of=node2/own/taught.bin.teacher bs=1 seek=9 conv=notrunc status=none
refused teacher '^dstrain: error: node[12]: ranks 2-3 on node2 would compute another run than rank 0 on node1: data ' \
  "$dstrain" --hostfile hosts --no_ssh_check "${taught[@]}" --output other_teacher
refused mpirun_teacher "${other}data " "${by_mpirun[@]}" "${taught[@]}" --output other_teacher
