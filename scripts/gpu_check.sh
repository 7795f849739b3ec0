#!/usr/bin/env bash
# Builds dstrain with CUDA and checks it on this machine's GPU; without a GPU it does what can be done
# without (build, link, the emulated device) and says what it skipped. Needs CUDA's toolkit, CMake 3.25,
# a C++20 compiler and python3; no network, no MPI.
#   scripts/gpu_check.sh [--deps FOLDER] [--build FOLDER] [--output FILE]
#     --deps    headers and libraries as scripts/pack_gpu_deps.sh packs them; absent: the system's
#     --build   absent: build/gpu
#     --output  the results as JSON; absent: benchmarks/results/gpu_NAME.json, nothing without a GPU
# Exit status: 0 where nothing failed, else 1. Under 8 minutes on 16 cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deps='' build=build/gpu output=''
while (($# > 0)); do
  case "$1" in
    --deps) deps=$(realpath "$2") ;;
    --build) build=$2 ;;
    --output) output=$2 ;;
    *)
      echo "gpu_check.sh: unknown argument '$1'; usage: $0 [--deps FOLDER] [--build FOLDER] [--output FILE]" >&2
      exit 1
      ;;
  esac
  shift 2
done

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
echo "GPU: ${gpu:-none}, driver: ${driver:-none}, CUDA $cuda"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=$work/steps.jsonl figures=$work/figures.json
: >"$steps"
echo '{}' >"$figures"

note() { # name result seconds reason
  python3 -c 'import json, sys
n, r, s, why = sys.argv[1:]
print(json.dumps({"name": n, "result": r, "seconds": int(s), **({"reason": why} if why else {})}))' \
    "$1" "$2" "$3" "${4:-}" >>"$steps"
  printf '==== %-40s %s (%s s)%s\n' "$1" "$2" "$3" "${4:+: $4}"
}
# step NAME COMMAND...: runs it; what fails is noted, and the check goes on.
step() {
  local name=$1 from=$SECONDS
  shift
  if "$@" >"$work/log" 2>&1; then
    note "$name" passed $((SECONDS - from))
  else
    tail -40 "$work/log"
    note "$name" failed $((SECONDS - from)) "$(tail -1 "$work/log")"
    return 1
  fi
}
gpu_step() {
  if [[ -n $gpu ]]; then step "$@" || true; else note "$1" skipped 0 'no GPU'; fi
}

configure() {
  local options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DDSTRAIN_CUDA=ON
    -DCMAKE_CUDA_COMPILER="$nvcc" -DDSTRAIN_WARNINGS_AS_ERRORS=OFF)
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if ! command -v mpicc >/dev/null; then options+=(-DDSTRAIN_MPI=OFF); fi
  if [[ -n $gpu ]]; then
    options+=(-DCMAKE_CUDA_ARCHITECTURES="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)")
  fi
  if [[ -n $deps ]]; then
    options+=(-DCMAKE_PREFIX_PATH="$deps/usr" -DBoost_NO_SYSTEM_PATHS=ON
      -DCMAKE_LIBRARY_PATH="$deps/usr/lib/x86_64-linux-gnu" -DCMAKE_INCLUDE_PATH="$deps/usr/include"
      -DCMAKE_CXX_FLAGS="-isystem $deps/usr/include" -DCMAKE_CUDA_FLAGS="-isystem $deps/usr/include")
    export LD_LIBRARY_PATH=$deps/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
  cmake "${options[@]}"
}
programs=(dstrain test_kernels_emulated test_products_emulated test_attention_emulated
  test_kernels_cuda test_products_cuda test_attention_cuda)
suite() { (cd "$build" && ctest --output-on-failure -R "$1"); }

# losses DEVICE A B...: a tiny GPT-lite of 50 steps on the CPU and on DEVICE; prints and checks the largest
# difference of the losses (scripts/compare_losses.py).
losses() {
  local device=$1 dtype=$2 steps=$3
  shift 3
  python3 -c "import random
random.seed(1)
words = [''.join(random.choices('abcdefgh', k=random.randint(2, 6))) for _ in range(200)]
print(' '.join(random.choices(words, k=20000)))" >"$work/text.txt"
  local common=(--config configs/quickstart.json --model gptlite --data "$work/text.txt"
    --num_gpus 1 --steps "$steps" --set dstrain.eval_interval=0 --set train_batch_size=8
    --set dstrain.model.n_layer=2 --set dstrain.model.n_embd=64 --set dstrain.model.n_head=1
    --set dstrain.model.block_size=64)
  if [[ $dtype != fp32 ]]; then common+=(--set "$dtype.enabled=true"); fi
  "$build/bin/dstrain" "${common[@]}" --device cpu --output "$work/cpu"
  "$build/bin/dstrain" "${common[@]}" --device "$device" --output "$work/$device"
  python3 scripts/compare_losses.py "$work/cpu/metrics.jsonl" "$work/$device/metrics.jsonl" "$@"
}

# sanitized TOOL: the small cases of the parity suite.
sanitized() {
  local program
  for program in test_products_cuda test_attention_cuda; do
    DSTRAIN_PARITY_BUDGET=20000 compute-sanitizer --tool "$1" --error-exitcode 9 \
      "$build/bin/$program" '*double-precision*,*same bits*'
  done
}

# The step of GPT-2 124M: tokens per second of the last half of 20 steps, into the figures.
step_speed() {
  python3 -c "import random
import struct
random.seed(1)
open('$work/tokens.bin', 'wb').write(struct.pack('<400000H', *(random.randrange(50257) for _ in range(400000))))"
  "$build/bin/dstrain" --config configs/gpt2_124m.json --data "$work/tokens.bin" --num_gpus 1 \
    --device cuda --steps 20 --set train_batch_size=16 --set train_micro_batch_size_per_gpu=16 \
    --set dstrain.eval_interval=0 --set dstrain.save_interval=0 --output "$work/gpt2"
  python3 - "$work/gpt2/metrics.jsonl" "$figures" <<'PY'
import json
import statistics
import sys
steps = [json.loads(line) for line in open(sys.argv[1])]
steps = [s for s in steps if "loss" in s][len(steps) // 2:]
figures = json.load(open(sys.argv[2]))
figures["gpt2_124m_bf16_tokens_per_second"] = statistics.median(s["tokens"] / s["step_ms"] * 1000 for s in steps)
json.dump(figures, open(sys.argv[2], "w"))
print(figures)
PY
}

built=no
if step 'configure' configure &&
  step 'build' cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}"; then
  built=yes
fi
if [[ $built == yes ]]; then
  step 'starts without asking for a GPU' "$build/bin/dstrain" --version || true
  step 'parity suite, emulated device' suite '_emulated$' || true
  step 'loss curve, emulated device, fp32' losses emulated fp32 2 --within 1e-5 || true
  gpu_step 'parity suite, GPU' suite '_cuda$'
  gpu_step 'loss curve, GPU, fp32' losses cuda fp32 50 --within 1e-4
  gpu_step 'loss curve, GPU, bf16' losses cuda bf16 50 --within 2e-2 --first 5 1e-3
  if [[ -n $gpu ]] && ! command -v compute-sanitizer >/dev/null; then
    note 'compute-sanitizer' skipped 0 'not on PATH'
  else
    gpu_step 'compute-sanitizer memcheck' sanitized memcheck
    gpu_step 'compute-sanitizer racecheck' sanitized racecheck
  fi
  gpu_step 'step of GPT-2 124M, bf16' step_speed
fi

if [[ -z $output && -n $gpu ]]; then
  output=benchmarks/results/gpu_$(tr 'A-Z ' 'a-z_' <<<"$gpu" | tr -cd 'a-z0-9_').json
fi
python3 - "$steps" "$figures" "${output:-}" "$gpu" "$driver" "$cuda" \
  "$(git rev-parse HEAD 2>/dev/null || echo unknown)" "$(date +%F)" <<'PY'
import json
import sys
steps, figures, output, gpu, driver, cuda, commit, date = sys.argv[1:]
steps = [json.loads(line) for line in open(steps)]
by = lambda result: [s["name"] for s in steps if s["result"] == result]
if output:
    with open(output, "w") as out:
        json.dump({"gpu": gpu or None, "driver": driver, "cuda": cuda, "commit": commit, "date": date,
                   "steps": steps, "figures": json.load(open(figures))}, out, indent=1)
        out.write("\n")
    print("written:", output)
for result in ("failed", "skipped"):
    if by(result):
        print(f"{result}: " + "; ".join(by(result)))
print(f"{len(by('passed'))} passed, {len(by('failed'))} failed, {len(by('skipped'))} skipped"
      + ("" if gpu else " (no GPU here: nothing above says that dstrain runs on one)"))
sys.exit(1 if by("failed") else 0)
PY
