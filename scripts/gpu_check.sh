#!/usr/bin/env bash
# Builds dstrain with CUDA, tests it on this machine's GPU and measures its speed. Without a GPU it builds, links and
# tests on the emulated device, and says what it skipped. Needs CUDA's toolkit, CMake 3.25, a C++20 compiler and
# python3, but no network and no MPI. If python3 has PyTorch, that is measured too, for comparison; where the system
# lacks cuBLASLt or NCCL, those of pip's packages are used.
#   scripts/gpu_check.sh [--part PART] [--deps FOLDER] [--build FOLDER] [--output FOLDER] [--only RE] [--seconds N] [--no-mpi]
#     --part     checks (is it right?), figures (how fast is it?) or all, one after the other (default: all)
#     --deps     the folder of headers and libraries that scripts/pack_gpu_deps.sh has made (default: the system's)
#     --build    the build folder (default: build/gpu). Whoever keeps it between two calls builds once.
#     --output   the folder for the results, PART.json, and the whole log of every step, PART.log; both are written
#                after every step (default: benchmarks/results/gpu_NAME with the GPU's name; without a GPU none)
#     --only     runs only the build and the steps whose names match this regular expression
#     --seconds  the seconds that the call may take: what is not done by then is ended or not begun (default: 570). Of
#                `all` the checks have half of them, and the figures what is left
#     --no-mpi   builds without Open MPI, even if it is installed
# After a step that fails, the others still run. The exit status is 0 if no step failed, else 1. A part takes less than
# ten minutes on 16 cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n 's/^#   \(scripts.*\)/gpu_check.sh: usage: \1/p' "$0" >&2
  exit 1
}
words=("$@") part=all deps='' build=build/gpu output='' only='' seconds=570 mpi=yes
while (($# > 0)); do
  case "$1" in
    --no-mpi) mpi=no && shift && continue ;;
    --part | --deps | --build | --output | --only | --seconds) ;;
    *) usage ;;
  esac
  value=${2:?"gpu_check.sh: $1 needs a value"}
  case "$1" in
    --part) part=$value ;;
    --deps) deps=$(realpath "$value") ;;
    --build) build=$value ;;
    --output) output=$value ;;
    --only) only=$value ;;
    --seconds) seconds=$value ;;
  esac
  shift 2
done
case $part in
  checks | figures) ;;
  all)
    status=0
    scripts/gpu_check.sh "${words[@]}" --part checks --seconds $((seconds / 2)) || status=$?
    scripts/gpu_check.sh "${words[@]}" --part figures --seconds $((seconds > SECONDS ? seconds - SECONDS : 1)) || status=$?
    exit $status
    ;;
  *) usage ;;
esac

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
commit=$(git rev-parse HEAD 2>/dev/null || cat "$deps/commit" 2>/dev/null || echo unknown)
echo "part: $part, GPU: ${gpu:-none}, driver: ${driver:-none}, CUDA $cuda, $(nproc) cores, $seconds seconds"
if [[ -z $output && -n $gpu ]]; then
  output=benchmarks/results/gpu_$(tr 'A-Z ' 'a-z_' <<<"$gpu" | tr -cd 'a-z0-9_')
fi
device=emulated
if [[ -n $gpu ]]; then device=cuda; fi

work=$(mktemp -d)
steps=$work/steps.jsonl
mkdir "$work/logs" "$work/ends" "$work/late" "$work/texts"
: >"$steps"
if [[ -n $output ]]; then
  mkdir -p "$output"
  : >"$output/$part.log"
fi
write_results() {
  local words=(--steps "$steps" --figures "$work/figures.json" --texts "$work/texts" "$@")
  if [[ -n $output ]]; then words+=(--output "$output/$part.json"); fi
  python3 scripts/gpu_report.py "${words[@]}" -- "part=$part" "gpu=$gpu" "driver=$driver" "cuda=$cuda" \
    "date=$(date +%F)" "commit=$commit"
}
write_log() { # name result
  if [[ -z $output || ! -e $work/logs/$1 ]]; then return 0; fi
  { printf '==== %s: %s\n' "$1" "$2" && cat "$work/logs/$1" && echo; } >>"$output/$part.log"
}

# Every step is a process group of its own, so that its programs end with it.
declare -A group_of watcher_of began
end_group() { kill "-$1" -- "-$2" 2>/dev/null || true; }
finish() {
  local name
  for name in "${!group_of[@]}"; do
    end_group KILL "${watcher_of[$name]}"
    end_group TERM "${group_of[$name]}"
    write_log "$name" 'ended with gpu_check.sh'
  done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

note() { # name result seconds reason
  printf '==== %-44s %s (%s s)%s\n' "$1" "$2" "$3" "${4:+: $4}"
  write_log "$1" "$2"
  write_results --quiet --add "$1" "$2" "$3" "${4:-}" || true
}
# Prints the seconds that this part has left.
left() { echo $((seconds > SECONDS ? seconds - SECONDS : 0)); }

# start NAME LIMIT COMMAND...: begins a step in the background, which is ended after LIMIT seconds or when no time is
# left. Its log is "$work/logs/NAME".
start() {
  local name=$1 limit=$2 rest group
  shift 2
  rest=$(left)
  if ((limit > rest)); then limit=$rest; fi
  set -m # a process group for each of the two
  (
    trap 'echo $EPOCHSECONDS >"$work/ends/$name"' EXIT
    trap 'exit 143' TERM
    set -euo pipefail
    "$@"
  ) >"$work/logs/$name" 2>&1 &
  group=$!
  (
    sleep "$limit"
    : >"$work/late/$name"
    kill -TERM -- "-$group"
    sleep 5
    kill -KILL -- "-$group"
  ) >/dev/null 2>&1 &
  watcher_of[$name]=$!
  set +m
  group_of[$name]=$group
  began[$name]=$EPOCHSECONDS
}
# settle NAME: waits for a step and notes its result. A step with status 77 was skipped; the last line of its log says
# why.
settle() {
  local name=$1 status=0 log="$work/logs/$1" why took
  wait "${group_of[$name]}" 2>/dev/null || status=$?
  end_group KILL "${watcher_of[$name]}"
  end_group KILL "${group_of[$name]}" # what it left running
  wait "${watcher_of[$name]}" 2>/dev/null || true
  unset "group_of[$name]"
  took=$(($(cat "$work/ends/$name" 2>/dev/null || echo "$EPOCHSECONDS") - began[$name]))
  why=$(grep -vE '^\s*$|Terminated$' "$log" | tail -1 | cut -c1-300 || true)
  if [[ -e $work/late/$name ]]; then
    status=124
    note "$name" failed $took "not done in time; last: $why"
  elif ((status == 0)); then
    note "$name" passed $took
  elif ((status == 77)); then
    note "$name" skipped $took "$why"
  else
    tail -40 "$log"
    note "$name" failed $took "$why"
  fi
  return $((status == 0 ? 0 : 1))
}
# begin NAME LIMIT COMMAND...: runs a step if --only asks for it and there is time, and notes it. If $beside is yes, the
# step runs in the background and is noted by join.
open=()
beside=no
begin() {
  if [[ ! $1 =~ $only ]]; then
    note "$1" skipped 0 'not asked for (--only)'
  elif (($(left) < 10)); then
    note "$1" skipped 0 'no time left (--seconds)'
  else
    start "$@"
    if [[ $beside == yes ]]; then open+=("$1"); else settle "$1" || true; fi
  fi
}
join() {
  local name
  for name in "${open[@]}"; do settle "$name" || true; done
  open=()
}
gpu_begin() {
  if [[ -n $gpu ]]; then begin "$@"; else note "$1" skipped 0 'no GPU'; fi
}

source scripts/gpu_check_steps.sh

checks() {
  if [[ -n $gpu && $(nproc) -ge 8 ]]; then
    beside=yes
    begin "PyTorch's models compiled, for the figures" 240 warm
    beside=no
  fi
  begin 'starts without asking for a GPU' 30 "$build/bin/dstrain" --version
  if [[ -n $gpu ]]; then
    note 'parity suite, emulated device' skipped 0 'a GPU is here'
    note 'loss curve, emulated device, fp32' skipped 0 'a GPU is here'
  else
    begin 'parity suite, emulated device' 600 suite emulated
    begin 'loss curve, emulated device, fp32' 120 losses emulated fp32 2 --within 1e-5
  fi
  gpu_begin 'parity suite, GPU' 150 suite cuda
  # Adam divides a gradient by its own size: one that is zero up to rounding moves a weight by the whole learning rate,
  # either way. So runs part with the number of steps, whatever the kernels do.
  gpu_begin 'loss curve, GPU, fp32' 240 losses cuda fp32 10 --within 1e-4
  gpu_begin 'loss curve, GPU, bf16' 240 losses cuda bf16 50 --within 2e-2 --first 5 1e-3
  local many
  many=$([[ -n $gpu ]] && echo 20 || echo 3)
  begin 'graph on and off' 240 graphs "$device" "$many"
  begin 'two ranks on one GPU, through the host' 300 stages "$device" "$many"
  begin 'one rank through NCCL' 60 one_rank_nccl
  begin 'out of memory is found by the plan' 120 out_of_memory "$device"
  begin 'machine code of the kernels' 120 machine_code
  if [[ -z $gpu ]]; then
    note 'compute-sanitizer' skipped 0 'no GPU'
  elif [[ ! -x $sanitizer ]]; then
    note 'compute-sanitizer' skipped 0 'not on PATH'
  else
    sanitizers
  fi
  join
}
# Whole steps first: they say the most. The kernels have what is left.
figures() {
  if [[ -n $gpu ]]; then
    begin 'step figures' $(($(left) * 7 / 10)) step_figures $(($(left) * 6 / 10))
    begin 'kernel figures' "$(left)" kernel_figures $(($(left) * 7 / 10))
  else
    begin 'step figures, emulated device' 120 step_figures 100
    begin 'kernel figures, emulated device' 120 kernel_figures 100 --cases '^add C|^attention|^adam'
    rm -f "$work/figures.json" # of a device that has no speed
  fi
}

prepare
start configure 300 configure
if settle configure; then
  start build "$seconds" build_all
  if settle build; then "$part"; fi
fi
write_results
