# The steps of scripts/gpu_check.sh, which reads this file: functions that fail with a reason in the last line of their
# output, or end with skip. They use its variables: part, deps, build, gpu, device, nvcc, sanitizer, mpi, work.

skip() {
  echo "$1"
  exit 77
}

# Writes the text that the runs of the checks train on.
prepare() {
  python3 -c "import random
random.seed(1)
words = [''.join(random.choices('abcdefgh', k=random.randint(2, 6))) for _ in range(200)]
print(' '.join(random.choices(words, k=20000)))" >"$work/text.txt"
}

configure() {
  # Code for this GPU alone; without one, for Hopper.
  local architecture=90
  if [[ -n $gpu ]]; then
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  fi
  local options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DDSTRAIN_CUDA=ON
    -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architecture"
    -DDSTRAIN_WARNINGS_AS_ERRORS=OFF)
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if [[ $mpi == no ]] || ! command -v mpicc >/dev/null; then options+=(-DDSTRAIN_MPI=OFF); fi
  if [[ -n $deps ]]; then
    options+=(-DCMAKE_PREFIX_PATH="$deps/usr" -DBoost_NO_SYSTEM_PATHS=ON
      -DCMAKE_LIBRARY_PATH="$deps/usr/lib/x86_64-linux-gnu" -DCMAKE_INCLUDE_PATH="$deps/usr/include"
      -DCMAKE_CXX_FLAGS="-isystem $deps/usr/include" -DCMAKE_CUDA_FLAGS="-isystem $deps/usr/include")
  fi
  cmake "${options[@]}"
}
if [[ -n $deps ]]; then
  export LD_LIBRARY_PATH=$deps/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# The programs of this part.
programs() {
  echo dstrain
  if [[ $part == figures ]]; then
    echo bench_cuda
    return
  fi
  local family
  for family in kernels products attention; do
    # The emulated device is tested only if there is no GPU.
    if [[ -n $gpu ]]; then echo "test_${family}_cuda"; else echo "test_${family}_emulated"; fi
  done
  if grep -qs '^NCCL_LIBRARY.*=/' "$build/CMakeCache.txt"; then echo test_nccl; fi
}
build_all() {
  local targets
  mapfile -t targets < <(programs)
  if ! cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" | tee "$work/build"; then
    grep -m1 -E 'error[: ]|undefined reference' "$work/build" # becomes the last line of the log, the reason
    return 1
  fi
}

suite() { # device
  ctest --test-dir "$build" --output-on-failure --no-tests=error -j 3 -R "^(kernels|products|attention)_$1\$" |
    tee "$work/suite_$1"
  if grep -q 'Skipped' "$work/suite_$1"; then
    echo 'the tests found no GPU: see the log of one of them'
    return 1
  fi
}

# train NAME DEVICE STEPS WORDS...: trains a tiny GPT-lite and writes the results to "$work/NAME".
train() {
  local name=$1 device=$2 steps=$3
  shift 3
  "$build/bin/dstrain" --config configs/quickstart.json --model gptlite \
    --data "$work/text.txt" --device "$device" --steps "$steps" --output "$work/$name" \
    --set dstrain.eval_interval=0 --set dstrain.eval_samples=8 --set dstrain.save_last=false \
    --set train_batch_size=8 --set dstrain.model.n_layer=2 \
    --set dstrain.model.n_embd=64 --set dstrain.model.n_head=1 --set dstrain.model.block_size=64 "$@"
}
dtype_words() {
  if [[ $1 != fp32 ]]; then echo --set "$1.enabled=true"; fi
}
# losses DEVICE DTYPE STEPS LIMITS...: compares the losses of a run with those of the CPU (scripts/compare_losses.py).
losses() {
  local device=$1 dtype=$2 steps=$3 words
  shift 3
  mapfile -t words < <(dtype_words "$dtype" | tr ' ' '\n')
  train "cpu_$dtype" cpu "$steps" --num_gpus 1 "${words[@]}"
  train "${device}_$dtype" "$device" "$steps" --num_gpus 1 "${words[@]}"
  python3 scripts/compare_losses.py "$work/cpu_$dtype/metrics.jsonl" \
    "$work/${device}_$dtype/metrics.jsonl" "$@" | tee "$work/texts/losses_${device}_$dtype"
}
# One graph for a step of one micro-batch, and three for one of eight, with dropout, which counts the samples.
graphs() { # device steps
  local mode micros
  for micros in 1 8; do
    for mode in on off; do
      train "graph_${mode}_$micros" "$1" "$2" --num_gpus 1 --set "dstrain.cuda_graph=$mode" \
        --set "gradient_accumulation_steps=$micros" --set dstrain.model.dropout=0.1 --set bf16.enabled=true
    done
    python3 scripts/compare_losses.py "$work"/graph_{on,off}_"$micros"/metrics.jsonl --within 0
    cmp "$work"/graph_{on,off}_"$micros"/model.safetensors
  done
}
# Two ranks must have the same results at every ZeRO stage. They share one device, so their tensors pass through the
# host.
stages() { # device steps
  local stage
  for stage in 0 1 2 3; do
    CUDA_VISIBLE_DEVICES=0 train "stage_$stage" "$1" "$2" --num_gpus 2 \
      --set "zero_optimization.stage=$stage" --set dstrain.reduce=micro_batch --set bf16.enabled=true \
      --set zero_optimization.stage3_param_persistence_threshold=0 \
      --set zero_optimization.stage3_max_reuse_distance=0
    python3 scripts/compare_losses.py "$work/stage_0/metrics.jsonl" \
      "$work/stage_$stage/metrics.jsonl" --within 0
    cmp "$work"/stage_{0,"$stage"}/model.safetensors
  done
}
# NCCL connects one GPU with itself: its version, its calls and its streams are tried without a second GPU.
one_rank_nccl() {
  if [[ ! -x $build/bin/test_nccl ]]; then skip 'no NCCL here'; fi
  if [[ -z $gpu ]]; then skip 'no GPU'; fi
  "$build/bin/test_nccl"
}
# For a micro-batch that no machine has memory for, the run must fail before it reserves memory, and say what it needs.
out_of_memory() { # device
  local status=0
  python3 -c "import random
import struct
random.seed(1)
open('$work/tokens.bin', 'wb').write(struct.pack('<400000H', *random.choices(range(50257), k=400000)))"
  "$build/bin/dstrain" --config configs/gpt2_124m.json --data "$work/tokens.bin" \
    --device "$1" --num_gpus 1 --steps 1 --output "$work/large" \
    --set train_micro_batch_size_per_gpu=4096 --set train_batch_size=4096 --set dstrain.eval_interval=0 \
    >"$work/texts/out_of_memory" 2>&1 || status=$?
  cat "$work/texts/out_of_memory"
  [[ $status == 1 ]]
  grep -q 'the run needs' "$work/texts/out_of_memory"
}
# What the comments of the kernels state, against the code of this build.
machine_code() {
  ctest --test-dir "$build" --output-on-failure --no-tests=error -R '^check_sass$' | tee "$work/machine_code"
  if grep -q Skipped "$work/machine_code"; then skip 'no nvdisasm and cuobjdump here'; fi
}

# sanitized TOOL PROGRAM CASES: runs small cases of the parity suite in one process of compute-sanitizer.
sanitized() {
  DSTRAIN_PARITY_BUDGET=20000 sanitize "$1" "$build/bin/$2" "$3"
}
sanitize() { # tool program words...
  local tool=$1 status=0
  shift
  "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all "$@" || status=$?
  if grep -qE 'Device not supported|not supported on this' "$work/logs/"compute-sanitizer*"$tool"*; then
    skip 'compute-sanitizer does not support this device'
  fi
  return $status
}
sanitized_training() { # tool
  sanitize "$1" "$build/bin/dstrain" --config configs/quickstart.json --model gptlite \
    --data "$work/text.txt" --device cuda --num_gpus 1 --steps 2 --output "$work/sanitized_$1" \
    --set dstrain.eval_interval=0 --set dstrain.eval_samples=4 --set dstrain.save_last=false \
    --set train_batch_size=4 --set dstrain.model.n_layer=1 \
    --set dstrain.model.n_embd=64 --set dstrain.model.n_head=1 --set dstrain.model.block_size=32 \
    --set dstrain.model.activation=gelu --set dstrain.model.dropout=0.1 --set bf16.enabled=true
}
# The test cases that run under compute-sanitizer. Of the kernels that are neither products nor attention these are
# the cases that compare bits with the CPU's, and those of kernels with barriers.
declare -A cases=(
  [kernels]="*processor*,*layer_norm*,embed_token_grad*,cross_entropy returns*,sum_rows sums*"
  [products]='*double-precision*,*same bits*'
  [attention]='attention equals*,attention_grad equals*,attention drops*,attention_grad drops*'
)
sanitizers() {
  local tool family
  for tool in memcheck racecheck synccheck; do
    for family in kernels products attention; do
      begin "compute-sanitizer $tool, $family" 150 sanitized "$tool" "test_${family}_cuda" \
        "${cases[$family]}"
    done
  done
  begin 'compute-sanitizer memcheck, training' 150 sanitized_training memcheck
}

# Measurements: begin no new figure after SECONDS. PyTorch's compiled models stay in the build folder.
measure() { # what kinds seconds words...
  local what=$1 kinds=$2 limit=$3
  shift 3
  python3 benchmarks/cuda/measure.py "$what" --build "$build" --output "$work/figures.json" --device "$device" \
    --seconds "$limit" --cache "$build/torch" "$@"
  failures_in_figures "$kinds"
}
failures_in_figures() {
  python3 - "$work/figures.json" "$1" <<'PY'
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
# Beside the checks, so that the figures need not wait for it where they find the same build folder.
warm() {
  python3 benchmarks/cuda/measure.py warm --build "$build" --seconds 200 --cache "$build/torch"
}
step_figures() { measure steps steps "$@"; }
kernel_figures() { measure kernels kernels,peers "$@"; }
