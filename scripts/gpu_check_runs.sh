# What the steps of scripts/gpu_check.sh do, which reads this file: functions that fail with a reason in the last line of
# their output, or end with skip. They use its variables: part, deps, build, gpu, device, nvcc, sanitizer, mpi, work.
source scripts/gpu_check_build.sh

skip() {
  echo "$1"
  exit 77
}

# Writes the texts and tokens that the runs train on. Frequent tokens are much more frequent, so losses fall at once.
prepare() {
  python3 - "$work" <<'PY'
import random, struct, sys
random.seed(1)
words = ["".join(random.choices("abcdefgh", k=random.randint(2, 6))) for _ in range(200)]
open(sys.argv[1] + "/text.txt", "w").write(" ".join(random.choices(words, k=20000)))
weights = [1 / (i + 1) for i in range(50257)]
def write_tokens(name, count, of):
    tokens = random.choices(range(of), weights[:of], k=count)
    open(f"{sys.argv[1]}/{name}", "wb").write(struct.pack(f"<{count}H", *tokens))
write_tokens("tokens.bin", 400000, 50257)
write_tokens("few_tokens.bin", 20000, 96)
write_tokens("documents.bin", 20000, 96)
begins = range(0, 20001, 25)
open(sys.argv[1] + "/documents.bin.documents", "wb").write(struct.pack(f"<{len(begins)}Q", *begins))
PY
}

# Prints the first value with a GPU, else the second: steps on the emulated device take longer.
sized() { if [[ -n $gpu ]]; then echo "$1"; else echo "$2"; fi; }

# The small test cases of the parity suite: for compute-sanitizer, and for the emulated device, whose whole suite is among
# the tests of every change. Of the kernels that are neither products nor attention these are the cases that compare bits
# with the CPU's, and those of kernels with barriers.
declare -A cases=(
  [kernels]="*processor*,*layer_norm*,embed_token_grad*,cross_entropy returns*,sum_rows sums*"
  [products]='*double-precision*,*same bits*'
  [attention]='attention equals*,attention_grad equals*,attention drops*,attention_grad drops*'
)
suite() { # family
  local program=$build/bin/test_$1_$device status=0
  if [[ ! -x $program ]]; then skip "$program is not among the packed programs"; fi
  if [[ -n $gpu ]]; then
    DSTRAIN_SOURCES=$PWD "$program" || status=$?
  else
    DSTRAIN_PARITY_BUDGET=20000 DSTRAIN_SOURCES=$PWD "$program" "${cases[$1]}"
  fi
  if ((status == 77)); then
    echo 'the tests found no GPU'
    return 1
  fi
  return $status
}

# train NAME DEVICE STEPS WORDS...: trains a tiny GPT-lite, without a GPU a smaller one, and writes the results to
# "$work/NAME". A word KEY=VALUE sets a value of the configuration.
train() {
  local name=$1 on=$2 steps=$3 words=() word
  shift 3
  for word in "$@"; do
    if [[ $word =~ ^[a-z_0-9A-Z]+(\.[a-z_0-9A-Z]+)*= ]]; then words+=(--set "$word"); else words+=("$word"); fi
  done
  "$build/bin/dstrain" --config configs/quickstart.json --model gptlite \
    --data "$work/text.txt" --device "$on" --steps "$steps" --output "$work/$name" --overwrite \
    --set dstrain.eval_interval=0 --set dstrain.eval_samples=8 --set dstrain.save_last=false \
    --set train_batch_size=8 --set dstrain.model.n_layer=2 \
    --set "dstrain.model.n_embd=$(sized 64 32)" --set dstrain.model.n_head=1 \
    --set "dstrain.model.block_size=$(sized 64 32)" "${words[@]}"
}
same_losses() { # name other
  python3 scripts/compare_losses.py "$work"/{"$1","$2"}/metrics.jsonl --within 0
}
same_bits() { # name other
  same_losses "$@"
  cmp "$work"/{"$1","$2"}/model.safetensors
}
# as_on_cpu NAME STEPS LIMITS... [-- WORDS...]: compares the losses of a run with those of the CPU
# (scripts/compare_losses.py).
as_on_cpu() {
  local name=$1 steps=$2 limits=()
  shift 2
  while (($# > 0)) && [[ $1 != -- ]]; do limits+=("$1") && shift; done
  if (($# > 0)); then shift; fi
  local ranks=()
  if [[ " $* " != *' --num_gpus '* ]]; then ranks=(--num_gpus 1); fi
  train "cpu_$name" cpu "$steps" "${ranks[@]}" "$@"
  train "${device}_$name" "$device" "$steps" "${ranks[@]}" "$@"
  python3 scripts/compare_losses.py "$work"/{cpu,"$device"}_"$name"/metrics.jsonl "${limits[@]}" |
    tee "$work/texts/losses_${device}_$name"
}
# The first scale is too large, so steps are skipped, on both devices the same ones, until it fits.
scaled_losses() {
  as_on_cpu fp16 "$(sized 40 12)" --within 2e-2 -- fp16.enabled=true fp16.initial_scale_power=28 fp16.hysteresis=1
  python3 - "$work"/{cpu,"$device"}_fp16/metrics.jsonl <<'PY'
import json, sys
runs = [[s["skipped"] for s in map(json.loads, open(path)) if "loss" in s] for path in sys.argv[1:]]
print(f"skipped steps: {sum(runs[0])} of {len(runs[0])} on the CPU, {sum(runs[1])} on the device")
sys.exit(0 if runs[0] == runs[1] and 0 < sum(runs[0]) < len(runs[0]) else 1)
PY
}
# Prints how graphs are asked for: several ranks of the emulated device communicate through the host, and have none.
graphs_on() { # ranks
  if [[ -z $gpu ]] && (($1 > 1)); then echo auto; else echo on; fi
}
# A graph for a step of one micro-batch, and several for one of eight, with dropout, which counts the samples.
graphs() { # ranks
  local on mode micros
  on=$(graphs_on "$1")
  for micros in 1 8; do
    for mode in "$on" off; do
      train "graph_${mode}_$micros" "$device" "$(sized 20 3)" --num_gpus "$1" "dstrain.cuda_graph=$mode" \
        "train_batch_size=$((8 * $1))" "gradient_accumulation_steps=$micros" dstrain.model.dropout=0.1 bf16.enabled=true
    done
    same_bits "graph_${on}_$micros" "graph_off_$micros"
  done
}
# Small decoders of every family from fresh weights, with what their kernels differ in: heads of keys for several heads of
# queries, norms of heads, scaled positions, a sliding window, samples of several documents.
families() {
  local family on data
  python3 - "$work" "$(sized 64 32)" <<'PY'
import json, sys
folder, width = sys.argv[1], int(sys.argv[2])
decoder = dict(vocab_size=96, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=width)
llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=width // 2)
families = {
    "llama": decoder | dict(rope_scaling=llama3, attention_bias=True),
    "mistral": decoder | dict(sliding_window=width // 4),
    "qwen2": decoder | dict(tie_word_embeddings=True),
    "qwen3": decoder | dict(head_dim=128),
    "gpt2": dict(vocab_size=96, n_embd=width, n_layer=2, n_head=4, n_positions=width),
}
for name, members in families.items():
    json.dump({"model_type": name} | members, open(f"{folder}/{name}.json", "w"))
PY
  for family in llama mistral qwen2 qwen3 gpt2; do
    data=(--data "$work/few_tokens.bin")
    if [[ $family != qwen* ]]; then data=(--data "$work/documents.bin" --set dstrain.data.packing=pack); fi
    for on in cpu "$device"; do
      "$build/bin/dstrain" --config configs/finetune.json --model "$work/$family.json" "${data[@]}" \
        --device "$on" --num_gpus 1 --steps "$(sized 20 4)" --output "$work/${family}_$on" --overwrite --set train_batch_size=8 \
        --set train_micro_batch_size_per_gpu=4 --set optimizer.params.lr=1e-3 --set dstrain.eval_interval=0 \
        --set dstrain.save_last=false
    done
    python3 scripts/compare_losses.py "$work/${family}"_{cpu,"$device"}/metrics.jsonl --within 2e-2 --first 3 2e-3 |
      tee "$work/texts/losses_${device}_$family"
  done
}
# Two ranks must have the same results at every ZeRO stage. They share one device, so their tensors pass through the
# host.
stages() {
  local stage
  for stage in 0 1 2 3; do
    CUDA_VISIBLE_DEVICES=0 train "stage_$stage" "$device" "$(sized 20 3)" --num_gpus 2 \
      "zero_optimization.stage=$stage" dstrain.reduce=micro_batch bf16.enabled=true \
      zero_optimization.stage3_param_persistence_threshold=0 zero_optimization.stage3_max_reuse_distance=0
    same_bits stage_0 "stage_$stage"
  done
}
# A pipeline has the bits of one rank with the same micro-batches.
pipeline() { # stages
  local words=(dstrain.model.n_layer=4 gradient_accumulation_steps=8 bf16.enabled=true)
  train "undivided_$1" "$device" "$(sized 20 3)" --num_gpus 1 "${words[@]}"
  train "pipeline_$1" "$device" "$(sized 20 3)" --num_gpus "$1" --pipeline_num_stages "$1" "${words[@]}"
  same_bits "undivided_$1" "pipeline_$1"
}
offload() { # cpu, nvme
  local words=(bf16.enabled=true zero_optimization.stage=2)
  mkdir -p "$build/nvme"
  train "resident_$1" "$device" "$(sized 20 3)" --num_gpus 1 "${words[@]}"
  train "offload_$1" "$device" "$(sized 20 3)" --num_gpus 1 "${words[@]}" \
    "zero_optimization.offload_optimizer.device=$1" "zero_optimization.offload_optimizer.nvme_path=$build/nvme"
  same_bits "resident_$1" "offload_$1"
}
# What a codec packs is rounded, so a last bit may become a step of the codec.
codec() { # name words...
  CUDA_VISIBLE_DEVICES=0 as_on_cpu "$1" "$(sized 10 4)" --within 2e-2 -- --num_gpus 2 "${@:2}"
}
resume() {
  train whole "$device" 6 --num_gpus 1 --save_interval 3 bf16.enabled=true dstrain.model.dropout=0.1
  train resumed "$device" 6 --num_gpus 1 bf16.enabled=true dstrain.model.dropout=0.1 --resume "$work/whole/checkpoints/step_3"
  cmp "$work"/{whole,resumed}/model.safetensors
}
# The likeliest tokens, in fp32, are those that the CPU finds.
generate() {
  local on
  train written "$device" 10 --num_gpus 1
  for on in cpu "$device"; do
    "$build/bin/dstrain" generate --run "$work/written" --device "$on" --prompt 'ab' --tokens 40 --temperature 0 |
      tee "$work/texts/generated_$on"
  done
  cmp "$work/texts/generated_cpu" "$work/texts/generated_$device"
}
# NCCL connects one GPU with itself: its version, its calls and its streams are tried without a second GPU.
one_rank_nccl() {
  if [[ ! -x $build/bin/test_nccl ]]; then skip 'no NCCL here'; fi
  if [[ -z $gpu ]]; then skip 'no GPU'; fi
  "$build/bin/test_nccl"
}
# What the comments of the kernels state, against the code of these programs.
machine_code() {
  local status=0
  PATH=$PATH:$(dirname "$nvcc") python3 tests/kernels/cuda/static/check_sass.py --archive "$build/bin/dstrain" || status=$?
  if ((status == 77)); then skip 'no nvdisasm and cuobjdump here'; fi
  return $status
}

source scripts/gpu_check_gpt2.sh
source scripts/gpu_check_seeing.sh
source scripts/gpu_check_several.sh

sanitized() { # tool family
  DSTRAIN_PARITY_BUDGET=20000 DSTRAIN_SOURCES=$PWD sanitize "$1" "$build/bin/test_$2_cuda" "${cases[$2]}"
}
sanitize() { # tool program words...
  local tool=$1 status=0 log
  log=$(mktemp "$work/sanitizer.XXXXXX")
  shift
  if [[ ! -x $sanitizer ]]; then skip 'no compute-sanitizer here'; fi
  "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all "$@" 2>&1 | tee "$log" || status=$?
  if grep -qE 'Device not supported|not supported on this' "$log"; then
    skip 'compute-sanitizer does not support this device'
  fi
  return $status
}
sanitized_training() { # tool
  sanitize "$1" "$build/bin/dstrain" --config configs/quickstart.json --model gptlite \
    --data "$work/text.txt" --device cuda --num_gpus 1 --steps 2 --output "$work/sanitized_$1" --overwrite \
    --set dstrain.eval_interval=0 --set dstrain.eval_samples=4 --set dstrain.save_last=false \
    --set train_batch_size=4 --set dstrain.model.n_layer=1 \
    --set dstrain.model.n_embd=64 --set dstrain.model.n_head=1 --set dstrain.model.block_size=32 \
    --set dstrain.model.activation=gelu --set dstrain.model.dropout=0.1 --set bf16.enabled=true
}
