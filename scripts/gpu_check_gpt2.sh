# The steps of scripts/gpu_check.sh with GPT-2, which gpu_check_runs.sh reads. Without a GPU the model is a small one.

# gpt2_command NAME STEPS RANKS WORDS...: sets `command` to the command line that trains GPT-2 124M and writes the results
# to "$work/NAME".
gpt2_command() {
  local name=$1 steps=$2 ranks=$3 micro=16 words=()
  shift 3
  if [[ -z $gpu ]]; then
    micro=1 words=(--set dstrain.model.n_layer=1 --set dstrain.model.n_embd=64 --set dstrain.model.n_head=1
      --set dstrain.model.block_size=16)
  fi
  command=("$build/bin/dstrain" --config configs/gpt2_124m.json --data "$work/tokens.bin" --device "$device"
    --num_gpus "$ranks" --steps "$steps" --output "$work/$name" --overwrite --set dstrain.eval_interval=0
    --set dstrain.eval_samples=$micro --set dstrain.save_interval=0 --set dstrain.save_last=false
    --set "train_batch_size=$((micro * ranks))" --set "train_micro_batch_size_per_gpu=$micro" --ignore scheduler
    "${words[@]}" "$@")
}
# Takes the same words and runs the command.
gpt2() {
  local command
  gpt2_command "$@"
  "${command[@]}"
}
# Loss begins where all tokens are as likely and falls; the memory in use after step 1 is written to the results.
gpt2_steps() {
  gpt2 gpt2 15 1 &
  local run=$!
  until grep -qs '"step":1,' "$work/gpt2/metrics.jsonl" || ! kill -0 $run 2>/dev/null; do sleep 0.05; done
  if [[ -n $gpu ]]; then
    nvidia-smi --query-gpu=memory.total,memory.used,memory.free --format=csv | tee "$work/texts/memory_after_step_1"
  fi
  wait $run
  python3 - "$work/gpt2/metrics.jsonl" <<'PY'
import json, math, statistics, sys
steps = [s for s in map(json.loads, open(sys.argv[1])) if "loss" in s]
losses = [s["loss"] for s in steps]
print(f"losses of {len(steps)} steps: {losses[0]:.4f} to {losses[-1]:.4f}; median of their times "
      f"{statistics.median(s['step_ms'] for s in steps):.2f} ms; the plan has {steps[0]['peak_bytes'] / 2**20:.0f} MiB")
if len(steps) != 15 or abs(losses[0] - math.log(50257)) > 0.3 or not losses[-1] < losses[0]:
    sys.exit("expected 15 steps whose loss begins near ln(50257) = 10.82 and falls")
PY
}
gpt2_trace() {
  gpt2 gpt2_trace 6 1 --set "dstrain.trace=$work/trace.json"
  if [[ -n $output ]]; then xz -c "$work/trace.json" >"$output/trace.json.xz"; fi
  python3 - "$work/trace.json" <<'PY' | tee "$work/texts/trace"
import collections, json, sys
trace = json.load(open(sys.argv[1]))
spent = collections.Counter()
for event in trace["traceEvents"] if isinstance(trace, dict) else trace:
    if event.get("ph") == "X":
        spent[event["name"].split()[0]] += event["dur"]
for name, us in spent.most_common(25):
    print(f"{name:32} {us / 1e3:10.3f} ms")
if not spent:
    sys.exit("the trace has no instruction")
PY
}
# Both begin with the same weights, take the same samples in order, and have the same settings.
torch_losses() {
  if ! python3 -c 'import torch' 2>/dev/null; then skip 'no PyTorch here'; fi
  local words=(--set dstrain.data.order=sequential --set dstrain.data.val_fraction=0.1)
  gpt2 torch_begin 0 1 "${words[@]}"
  gpt2 torch_ours 20 1 "${words[@]}" --init_weights "$work/torch_begin"
  python3 benchmarks/cuda/torch_losses.py --weights "$work/torch_begin/model.safetensors" --tokens "$work/tokens.bin" \
    --batch "$(sized 16 1)" --heads "$(sized 12 1)" --steps 20 --device "$(sized cuda cpu)" >"$work/torch_theirs"
  python3 scripts/compare_losses.py "$work/torch_ours/metrics.jsonl" "$work/torch_theirs" --within 1e-2 --first 3 2e-3 |
    tee "$work/texts/torch_losses"
}
# For a micro-batch that no machine has memory for, the run must fail before it reserves memory, and say what it needs.
out_of_memory() {
  local status=0
  "$build/bin/dstrain" --config configs/gpt2_124m.json --data "$work/tokens.bin" \
    --device "$device" --num_gpus 1 --steps 1 --output "$work/large" --overwrite \
    --set train_micro_batch_size_per_gpu=4096 --set train_batch_size=4096 --set dstrain.eval_interval=0 \
    >"$work/texts/out_of_memory" 2>&1 || status=$?
  cat "$work/texts/out_of_memory"
  [[ $status == 1 ]]
  grep -q 'the run needs' "$work/texts/out_of_memory"
}

# Measurements: begin no new figure after SECONDS. PyTorch's compiled models stay in the build folder.
measure() { # what kinds seconds cases
  python3 benchmarks/cuda/measure.py "$1" --build "$build" --output "$work/figures.json" --device "$device" \
    --seconds "$3" --cache "$build/torch" --cases "$4"
  python3 - "$work/figures.json" "$2" <<'PY'
import json
import sys
path, kinds = sys.argv[1:]
figures = json.load(open(path))
bad = [f"{f['name']}: {f['failed']}" for kind in kinds.split(",") for f in figures.get(kind, []) if "failed" in f]
if bad:
    print(f"{len(bad)} figures failed, the first: {bad[0]}")
    sys.exit(1)
PY
}
step_figures() { measure steps steps "$@"; }
kernel_figures() { measure kernels kernels,peers "$@"; }
# What the GPU's counters say of one run of a kernel.
counters() { # kernel (a part of its name) case
  local ncu status=0
  ncu=$(command -v ncu || echo "$(dirname "$nvcc")/ncu")
  if [[ ! -x $ncu ]]; then skip 'no ncu here'; fi
  "$ncu" --kernel-name "regex:$1" --launch-count 1 --kill yes --section SpeedOfLight --section Occupancy \
    --section WarpStateStats --section MemoryWorkloadAnalysis \
    "$build/bin/bench_cuda" --cases "^$2\$" >"$work/texts/ncu_$1" 2>&1 || status=$?
  cat "$work/texts/ncu_$1"
  if grep -q ERR_NVGPUCTRPERM "$work/texts/ncu_$1"; then skip "the driver does not let this user read the GPU's counters"; fi
  grep -q "$1" "$work/texts/ncu_$1" # ncu ends the program, so its status says nothing
}
# Tokens per second of GPT-2 on one rank and on all, gradients added in rank order and by NCCL.
scaling() { # ranks
  local ranks sums
  for ranks in 1 "$1"; do
    for sums in true false; do
      gpt2 "scaling_${ranks}_$sums" "$(sized 30 3)" "$ranks" --set "dstrain.deterministic_collectives=$sums" >&2
      python3 - "$work/scaling_${ranks}_$sums/metrics.jsonl" "$ranks ranks, deterministic_collectives $sums" <<'PY'
import json, statistics, sys
steps = [s for s in map(json.loads, open(sys.argv[1])) if "loss" in s]
rate = statistics.median(s["tokens"] / s["step_ms"] * 1e3 for s in steps[len(steps) // 3:])
print(f"{sys.argv[2]}: {rate:.0f} tokens/s")
PY
    done
  done | tee "$work/texts/scaling"
}
