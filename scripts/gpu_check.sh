#!/usr/bin/env bash
# Builds dstrain with CUDA, tests it on this machine's GPU and measures its speed. Without a GPU it builds, links and
# tests on the emulated device, and says what it skipped. Needs CUDA's toolkit, CMake 3.25, a C++20 compiler and
# python3, but no network and no MPI. If python3 has PyTorch, that is measured too, for comparison.
#   scripts/gpu_check.sh [--deps FOLDER] [--build FOLDER] [--output FILE] [--only REGEX] [--seconds N] [--no-mpi]
#     --deps     the folder of headers and libraries that scripts/pack_gpu_deps.sh has made (default: the system's)
#     --build    the build folder (default: build/gpu)
#     --output   the file for the results as JSON, written after every step (default: benchmarks/results/gpu_NAME.json
#                with the GPU's name; without a GPU none)
#     --only     runs only the build and the steps whose names match this regular expression
#     --seconds  seconds from the start after which no further measurement begins (default: 420)
#     --no-mpi   builds without Open MPI, even if it is installed
# After a step that fails, the others still run. The exit status is 0 if no step failed, else 1. Takes less than 8
# minutes on 16 cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deps='' build=build/gpu output='' only='' last=420 mpi=yes
while (($# > 0)); do
  case "$1" in
    --no-mpi) mpi=no && shift && continue ;;
    --deps | --build | --output | --only | --seconds) ;;
    *)
      sed -n 's/^#   \(scripts.*\)/gpu_check.sh: usage: \1/p' "$0" >&2
      exit 1
      ;;
  esac
  value=${2:?"gpu_check.sh: $1 needs a value"}
  case "$1" in
    --deps) deps=$(realpath "$value") ;;
    --build) build=$value ;;
    --output) output=$value ;;
    --only) only=$value ;;
    --seconds) last=$value ;;
  esac
  shift 2
done

PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
gpu='' driver=''
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
  IFS=, read -r gpu driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
  driver=${driver# }
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [[ ! -x $nvcc ]]; then
  echo "gpu_check.sh: no nvcc on PATH or in /usr/local/cuda: install CUDA's toolkit" >&2
  exit 1
fi
cuda=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$nvcc")/compute-sanitizer")
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
echo "GPU: ${gpu:-none}, driver: ${driver:-none}, CUDA $cuda, $(nproc) cores"
if [[ -z $output && -n $gpu ]]; then
  output=benchmarks/results/gpu_$(tr 'A-Z ' 'a-z_' <<<"$gpu" | tr -cd 'a-z0-9_').json
fi
device=emulated
if [[ -n $gpu ]]; then device=cuda; fi

work=$(mktemp -d)
steps=$work/steps.jsonl
mkdir "$work/logs" "$work/ends" "$work/texts"
: >"$steps"
write_results() {
  local words=(--steps "$steps" --figures "$work/figures.json" --texts "$work/texts" "$@")
  if [[ -n $output ]]; then words+=(--output "$output"); fi
  python3 scripts/gpu_report.py "${words[@]}" -- "gpu=$gpu" "driver=$driver" "cuda=$cuda" \
    "date=$(date +%F)" "commit=$commit"
}
# When the script ends, for whatever reason, it ends its background processes. The results so far have been written.
descendants() {
  local child
  for child in $(pgrep -P "$1"); do
    descendants "$child"
    echo "$child"
  done
}
finish() {
  local running
  running=$(descendants $$)
  if [[ -n $running ]]; then xargs kill <<<"$running" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

note() { # name result seconds reason
  printf '==== %-44s %s (%s s)%s\n' "$1" "$2" "$3" "${4:+: $4}"
  write_results --quiet --add "$1" "$2" "$3" "${4:-}" || true
}
# start NAME COMMAND...: begins a step in the background; its log is "$work/logs/NAME".
declare -A pid_of began
start() {
  local name=$1
  shift
  (
    trap 'echo $EPOCHSECONDS >"$work/ends/$name"' EXIT
    set -euo pipefail
    "$@"
  ) >"$work/logs/$name" 2>&1 &
  pid_of[$name]=$!
  began[$name]=$EPOCHSECONDS
}
# settle NAME: waits for a step and notes its result. A step with status 77 was skipped; the last line of its log says
# why.
settle() {
  local status=0 log="$work/logs/$1" why took
  wait "${pid_of[$1]}" || status=$?
  took=$(($(cat "$work/ends/$1" || echo "$EPOCHSECONDS") - began[$1]))
  why=$(grep -v '^\s*$' "$log" | tail -1 | cut -c1-300 || true)
  case $status in
    0) note "$1" passed $took ;;
    77) note "$1" skipped $took "$why" ;;
    124 | 137) note "$1" failed $took "not done in time; last: $why" ;;
    *)
      tail -40 "$log"
      note "$1" failed $took "$why"
      ;;
  esac
  return $((status == 0 ? 0 : 1))
}
# begin NAME COMMAND...: runs a step if --only asks for it. If $beside is yes, the step runs in the background until
# join.
open=()
beside=no
begin() {
  if [[ ! $1 =~ $only ]]; then
    note "$1" skipped 0 'not asked for (--only)'
    return
  fi
  start "$@"
  if [[ $beside == yes ]]; then open+=("$1"); else settle "$1" || true; fi
}
join() {
  local name
  for name in "${open[@]}"; do settle "$name" || true; done
  open=()
}
gpu_begin() {
  if [[ -n $gpu ]]; then begin "$@"; else note "$1" skipped 0 'no GPU'; fi
}
skip() {
  echo "$1"
  exit 77
}

configure() {
  local options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DDSTRAIN_CUDA=ON
    -DCMAKE_CUDA_COMPILER="$nvcc" -DDSTRAIN_WARNINGS_AS_ERRORS=OFF)
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if [[ $mpi == no ]] || ! command -v mpicc >/dev/null; then options+=(-DDSTRAIN_MPI=OFF); fi
  if [[ -n $gpu ]]; then
    options+=(-DCMAKE_CUDA_ARCHITECTURES="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)")
  fi
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
programs=(dstrain bench_cuda)
for family in kernels products attention; do
  programs+=("test_${family}_cuda")
  # The emulated device is tested only if there is no GPU.
  if [[ -z $gpu ]]; then programs+=("test_${family}_emulated"); fi
done

suite() { # device
  timeout -k 5 "$suite_seconds" ctest --test-dir "$build" --output-on-failure --no-tests=error -j 3 \
    -R "^(kernels|products|attention)_$1\$" | tee "$work/suite_$1"
  if grep -q 'Skipped' "$work/suite_$1"; then
    echo 'the tests found no GPU: see the log of one of them'
    return 1
  fi
}
suite_seconds=$([[ -n $gpu ]] && echo 150 || echo 600)

# train NAME DEVICE STEPS WORDS...: trains a tiny GPT-lite and writes the results to "$work/NAME".
train() {
  local name=$1 device=$2 steps=$3
  shift 3
  timeout -k 5 120 "$build/bin/dstrain" --config configs/quickstart.json --model gptlite \
    --data "$work/text.txt" --device "$device" --steps "$steps" --output "$work/$name" \
    --set dstrain.eval_interval=0 --set train_batch_size=8 --set dstrain.model.n_layer=2 \
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
graphs() { # device steps
  local mode
  for mode in on off; do
    train "graph_$mode" "$1" "$2" --num_gpus 1 --set "dstrain.cuda_graph=$mode" \
      --set bf16.enabled=true
  done
  python3 scripts/compare_losses.py "$work"/graph_{on,off}/metrics.jsonl --within 0
  cmp "$work"/graph_{on,off}/model.safetensors
}
# Two ranks must have the same results at every ZeRO stage. If there is a GPU, both ranks use it.
stages_name='ZeRO stages 0-3, two ranks'
stages() { # device steps
  if ! train ranks cpu 1 --num_gpus 2; then
    skip "two ranks do not start here: $(grep -v '^\s*$' "$work/logs/$stages_name" | tail -1)"
  fi
  local stage
  for stage in 0 1 2 3; do
    train "stage_$stage" "$1" "$2" --num_gpus 2 --set "zero_optimization.stage=$stage" \
      --set dstrain.reduce=micro_batch --set bf16.enabled=true \
      --set zero_optimization.stage3_param_persistence_threshold=0 \
      --set zero_optimization.stage3_max_reuse_distance=0
    python3 scripts/compare_losses.py "$work/stage_0/metrics.jsonl" \
      "$work/stage_$stage/metrics.jsonl" --within 0
    cmp "$work"/stage_{0,"$stage"}/model.safetensors
  done
}
# For a micro-batch that no machine has memory for, the run must fail before it reserves memory, and say what it needs.
out_of_memory() { # device
  local status=0
  tokens
  timeout -k 5 120 "$build/bin/dstrain" --config configs/gpt2_124m.json --data "$work/tokens.bin" \
    --device "$1" --num_gpus 1 --steps 1 --output "$work/large" \
    --set train_micro_batch_size_per_gpu=4096 --set train_batch_size=4096 --set dstrain.eval_interval=0 \
    >"$work/texts/out_of_memory" 2>&1 || status=$?
  cat "$work/texts/out_of_memory"
  [[ $status == 1 ]]
  grep -q 'the run needs' "$work/texts/out_of_memory"
}
tokens() {
  python3 -c "import random
import struct
random.seed(1)
open('$work/tokens.bin', 'wb').write(struct.pack('<400000H', *random.choices(range(50257), k=400000)))"
}

# sanitized TOOL PROGRAM CASES: runs small cases of the parity suite in one process of compute-sanitizer.
sanitized() {
  DSTRAIN_PARITY_BUDGET=20000 sanitize "$1" "$build/bin/$2" "$3"
}
sanitize() { # tool program words...
  local tool=$1 status=0
  shift
  timeout -k 5 150 "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all "$@" ||
    status=$?
  if grep -qE 'Device not supported|not supported on this' "$work/logs/"compute-sanitizer*"$tool"*; then
    skip 'compute-sanitizer does not support this device'
  fi
  return $status
}
sanitized_training() { # tool
  sanitize "$1" "$build/bin/dstrain" --config configs/quickstart.json --model gptlite \
    --data "$work/text.txt" --device cuda --num_gpus 1 --steps 2 --output "$work/sanitized_$1" \
    --set dstrain.eval_interval=0 --set train_batch_size=4 --set dstrain.model.n_layer=1 \
    --set dstrain.model.n_embd=64 --set dstrain.model.n_head=1 --set dstrain.model.block_size=32 \
    --set dstrain.model.activation=gelu --set dstrain.model.dropout=0.1 --set bf16.enabled=true
}
# The test cases that run under compute-sanitizer. Of the kernels that are neither products nor attention these are
# the cases that compare bits with the CPU's, and those of kernels with barriers.
declare -A cases=(
  [kernels]="*processor*,layer_norm normalises*,layer_norm_weight_grad*,layer_norm_input_grad*,cross_entropy returns*,sum_rows sums*"
  [products]='*double-precision*,*same bits*'
  [attention]='attention equals*,attention_grad equals*,attention drops*,attention_grad drops*'
)
sanitizers() {
  local tool family
  for tool in memcheck racecheck synccheck; do
    for family in kernels products attention; do
      begin "compute-sanitizer $tool, $family" sanitized "$tool" "test_${family}_cuda" \
        "${cases[$family]}"
    done
  done
  begin 'compute-sanitizer memcheck, training' sanitized_training memcheck
}

measure=(python3 benchmarks/cuda/measure.py --build "$build" --output "$work/figures.json")
# Without a GPU this only tests that the measuring program works; the figures of the emulated device are deleted.
measured_without_gpu() {
  timeout -k 5 120 "${measure[@]}" kernels --device emulated --cases '^add C|^attention|^adam'
  failures_in_figures kernels
  rm "$work/figures.json"
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
# Prints the seconds until no further measurement begins, at least 30.
left() { echo $((last > SECONDS + 30 ? last - SECONDS : 30)); }
kernel_figures() {
  local seconds
  seconds=$(left)
  timeout -k 5 $((seconds + 90)) "${measure[@]}" kernels --seconds "$seconds"
  failures_in_figures kernels,peers
}
step_figures() {
  local seconds
  seconds=$(left)
  timeout -k 5 $((seconds + 90)) "${measure[@]}" steps --seconds "$seconds" --cache "$work/torch"
  failures_in_figures steps
}
# Compiles PyTorch's models. Runs at the same time as the checks, so that the measurements need not wait for it.
warm_cache() {
  timeout -k 5 150 "${measure[@]}" warm --seconds 130 --cache "$work/torch" || true
}

python3 -c "import random
random.seed(1)
words = [''.join(random.choices('abcdefgh', k=random.randint(2, 6))) for _ in range(200)]
print(' '.join(random.choices(words, k=20000)))" >"$work/text.txt"

build_all() {
  if ! cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}" | tee "$work/build"; then
    grep -m1 -E 'error[: ]|undefined reference' "$work/build" # becomes the last line of the log, the reason
    return 1
  fi
}
built=no
start configure configure
if settle configure; then
  start build build_all
  if settle build; then built=yes; fi
fi
if [[ $built == yes ]]; then
  if [[ -n $gpu && $(nproc) -ge 8 ]]; then beside=yes; fi
  if [[ -n $gpu && 'step figures' =~ $only ]]; then begin 'step figures, compiling PyTorch' warm_cache; fi
  begin 'starts without asking for a GPU' "$build/bin/dstrain" --version
  if [[ -n $gpu ]]; then
    note 'parity suite, emulated device' skipped 0 'a GPU is here'
    note 'loss curve, emulated device, fp32' skipped 0 'a GPU is here'
  else
    begin 'parity suite, emulated device' suite emulated
    begin 'loss curve, emulated device, fp32' losses emulated fp32 2 --within 1e-5
  fi
  gpu_begin 'parity suite, GPU' suite cuda
  gpu_begin 'loss curve, GPU, fp32' losses cuda fp32 50 --within 1e-4
  gpu_begin 'loss curve, GPU, bf16' losses cuda bf16 50 --within 2e-2 --first 5 1e-3
  many=$([[ -n $gpu ]] && echo 20 || echo 3)
  begin 'graph on and off' graphs "$device" "$many"
  begin "$stages_name" stages "$device" "$many"
  begin 'out of memory is found by the plan' out_of_memory "$device"
  if [[ -z $gpu ]]; then
    note 'compute-sanitizer' skipped 0 'no GPU'
  elif [[ ! -x $sanitizer ]]; then
    note 'compute-sanitizer' skipped 0 'not on PATH'
  else
    sanitizers
  fi
  join
  beside=no
  if [[ -z $gpu ]]; then begin 'kernel figures, emulated device' measured_without_gpu; fi
  gpu_begin 'kernel figures' kernel_figures
  gpu_begin 'step figures' step_figures
fi
write_results
