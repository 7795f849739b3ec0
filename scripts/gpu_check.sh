#!/usr/bin/env bash
# Tests dstrain on this machine's GPUs and measures its speed: with the programs that scripts/pack_gpu_deps.sh has
# packed, if they start here, else with a build from source. Without a GPU the same steps run on the emulated device, at
# small sizes, or say why not. Needs python3 and CUDA's toolkit, to build also CMake 3.25 and a C++20 compiler, but no
# network and no MPI. If python3 has PyTorch, that is measured too, for comparison; where the system lacks cuBLASLt or
# NCCL, those of pip's packages are used.
#   scripts/gpu_check.sh [--part PART] [--deps FOLDER] [--build FOLDER] [--output FOLDER] [--only RE] [--seconds N] [--jobs N] [--gpus N] [--dry-run] [--no-mpi]
#     --part     checks (is it right?), figures (how fast is it?), all, which is both, one after the other (the default),
#                or gpus (for a machine with 2 to 8: runs on 2, 4 or 8 of them)
#     --deps     the folder of programs, headers and libraries that scripts/pack_gpu_deps.sh has made (default: the
#                system's)
#     --build    the build folder (default: build/gpu). Whoever keeps it between two calls builds once.
#     --output   the folder for the results, PART.json, and the whole log of every step, PART.log; both are written
#                after every step (default: benchmarks/results/gpu_NAME with the GPU's name; without a GPU none)
#     --only     runs only the steps whose names match this regular expression
#     --seconds  the seconds that the call may take: what is not done by then is ended or not begun (default: 570). Of
#                `all` the checks have half of them, and the figures what is left. The build of `gpus` does not count
#     --jobs     how many checks run at once, but for the first, whose times are of interest (default: a quarter of the
#                cores, at least one). Figures are taken one after the other
#     --gpus     how many GPUs the part `gpus` may use (default: those that are here; without any 8 ranks of the emulated
#                device)
#     --dry-run  prints the steps that the part would run, with their commands; of the part `gpus` those on 2, 4 and 8 GPUs,
#                or on as many as --gpus says. Needs no GPU and no toolkit
#     --no-mpi   builds without Open MPI, even if it is installed
# scripts/gpu_check_steps.sh has the table of steps. Each is noted as it ends; after one that fails, the others still run.
# The exit status is 0 if no step failed, else 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n 's/^#   \(scripts.*\)/gpu_check.sh: usage: \1/p' "$0" >&2
  exit 1
}
words=("$@") part=all deps='' build=build/gpu output='' only='' seconds=570 mpi=yes jobs=$((($(nproc) + 3) / 4)) may_use='' dry=no
while (($# > 0)); do
  case "$1" in
    --no-mpi) mpi=no && shift && continue ;;
    --dry-run) dry=yes && shift && continue ;;
    --part | --deps | --build | --output | --only | --seconds | --jobs | --gpus) ;;
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
    --jobs) jobs=$value ;;
    --gpus) may_use=$value ;;
  esac
  shift 2
done
case $part in
  checks | figures | gpus) ;;
  all)
    status=0
    scripts/gpu_check.sh "${words[@]}" --part checks --seconds $((seconds / 2)) || status=$?
    scripts/gpu_check.sh "${words[@]}" --part figures --seconds $((seconds > SECONDS ? seconds - SECONDS : 1)) || status=$?
    exit $status
    ;;
  *) usage ;;
esac
if [[ -n $may_use && ! $may_use =~ ^[2-8]$ ]]; then
  echo "gpu_check.sh: --gpus: expected 2 to 8, found $may_use" >&2
  exit 1
fi
# Prints the largest of 8, 4 and 2 that is not larger than the argument, else 2: layouts divide ranks by two.
ranks_of() {
  local n
  for n in 8 4; do
    if (($1 >= n)); then echo $n && return; fi
  done
  echo 2
}
if [[ $dry == yes ]]; then
  row() { # as below
    if [[ $1 != "$part" ]] || [[ $2 =~ ^[0-9]+$ && $ranks -lt $2 ]] || [[ ! $4 =~ $only ]]; then return 0; fi
    if [[ $part == gpus ]]; then printf '%s GPUs: ' "$ranks"; fi
    printf '%s: %s\n' "$4" "${*:5}"
  }
  settle_until_fewer_than() { :; }
  left() { echo "$seconds"; }
  sized() { echo "$1"; }
  source scripts/gpu_check_steps.sh
  counts=(8)
  if [[ $part == gpus ]]; then counts=(${may_use:-2 4 8}); fi
  for count in "${counts[@]}"; do
    ranks=$(ranks_of "$count")
    table
  done
  exit 0
fi

PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
gpu='' driver='' gpus=0
# grep reads all lines: nvidia-smi would fail if its reader ended at the first of several GPUs.
if command -v nvidia-smi >/dev/null; then gpus=$(nvidia-smi -L 2>/dev/null | grep -c GPU || true); fi
if ((gpus > 0)); then
  IFS=, read -r gpu driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed -n 1p)
  driver=${driver# }
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [[ ! -x $nvcc ]]; then
  echo "gpu_check.sh: no nvcc on PATH or in /usr/local/cuda: install CUDA's toolkit" >&2
  exit 1
fi
cuda=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$nvcc")/compute-sanitizer")
commit=$(cat "$deps/commit" 2>/dev/null || git rev-parse HEAD 2>/dev/null || echo unknown)
echo "part: $part, GPUs: $gpus, GPU: ${gpu:-none}, driver: ${driver:-none}, CUDA $cuda, $(nproc) cores, $seconds seconds"
if [[ -z $output && -n $gpu ]]; then
  output=benchmarks/results/gpu_$(tr 'A-Z ' 'a-z_' <<<"$gpu" | tr -cd 'a-z0-9_')
fi
device=emulated
if [[ -n $gpu ]]; then device=cuda; fi
if [[ -n $gpu && -n $may_use && $may_use -lt $gpus ]]; then gpus=$may_use; fi
ranks=$(ranks_of $((gpus > 0 ? gpus : ${may_use:-8})))

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
    trap "$(printf 'echo $EPOCHSECONDS >%q' "$work/ends/$name")" EXIT # the step may have a variable `name`
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
# Notes a step that is not begun. The next step that ends writes it, too: a process for each takes seconds in all.
pass_over() { # name reason
  printf '==== %-44s skipped: %s\n' "$1" "$2"
  printf '{"name": "%s", "result": "skipped", "seconds": 0, "reason": "%s"}\n' "$1" "$2" >>"$steps"
}
# begin NAME LIMIT COMMAND...: starts a step, if --only asks for it and there is time, and waits until fewer than $at_once
# steps run.
at_once=1 running=()
begin() {
  if [[ ! $1 =~ $only ]]; then
    pass_over "$1" 'not asked for (--only)'
  elif (($(left) < 10)); then
    pass_over "$1" 'no time left (--seconds)'
  else
    start "$@"
    running+=("$1")
    settle_until_fewer_than "$at_once"
  fi
}
settle_until_fewer_than() { # steps
  local name rest
  while ((${#running[@]} >= $1)); do
    rest=()
    for name in "${running[@]}"; do
      if [[ -e $work/ends/$name ]] || ! kill -0 "${group_of[$name]}" 2>/dev/null; then
        settle "$name" || true
      else
        rest+=("$name")
      fi
    done
    running=("${rest[@]}")
    if ((${#running[@]} >= $1)); then sleep 0.1; fi
  done
}
# row PART NEEDS LIMIT NAME COMMAND...: a row of the table of steps. NEEDS: any (the emulated device without a GPU), gpu,
# or how many GPUs (the emulated device without any).
row() {
  local of=$1 needs=$2 limit=$3 name=$4
  shift 4
  if [[ $of != "$part" ]]; then return 0; fi
  if [[ $needs == gpu && -z $gpu ]]; then
    pass_over "$name" 'no GPU'
  elif [[ $needs =~ ^[0-9]+$ && -n $gpu && $gpus -lt $needs ]]; then
    pass_over "$name" "needs $needs GPUs, and $gpus are here"
  else
    begin "$name" "$limit" "$@"
  fi
}

source scripts/gpu_check_runs.sh
source scripts/gpu_check_steps.sh

prepare
# A machine with several GPUs is worth them, not its compiler: the time of part `gpus` begins behind the build.
build_seconds=$seconds
if [[ $part == gpus ]]; then build_seconds=3600; fi
# Runs a step that the others need, whatever --only says.
first() {
  start "$@"
  settle "$1"
}
if first 'packed programs' 60 unpack || { first configure 300 configure && first build "$build_seconds" build_all; }; then
  if [[ $part == gpus ]]; then SECONDS=0; fi
  table
fi
if [[ -z $gpu ]]; then rm -f "$work/figures.json"; fi # of a device that has no speed
write_results
