#!/usr/bin/env bash
# From a bare Debian 12 machine to a small GPT that has learned English, on two CPU ranks, in under
# ten minutes: installs what is missing, builds, trains, writes some text of its own. Run again after an
# interruption, it goes on with its run.
#   scripts/quickstart.sh [--data FILE] [--steps N]
#     --data FILE   any UTF-8 text of a megabyte or more; default: the King James Bible
#     --steps N     optimizer steps; default: as many as take three minutes here, at most those of
#                   configs/quickstart.json
set -euo pipefail
start=$SECONDS
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=
steps=
while (($# > 0)); do
  case "$1" in
    --data | --steps)
      if (($# < 2)); then
        echo "$1 needs a value" >&2
        exit 1
      fi
      if [[ $1 == --data ]]; then data=$2; else steps=$2; fi
      shift 2
      ;;
    -h | --help)
      sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "unknown argument $1; usage: scripts/quickstart.sh [--data FILE] [--steps N]" >&2
      exit 1
      ;;
  esac
done
if [[ -n $data ]]; then
  [[ $data == /* ]] || data=$here/$data
  if [[ ! -r $data ]]; then
    echo "cannot read the text file $data" >&2
    exit 1
  fi
fi

say() { printf '\n== [%3d s] %s\n' $((SECONDS - start)) "$*"; }
work=build/quickstart
dstrain=build/release/bin/dstrain

say "packages: installing what is missing"
scripts/install_deps.sh

say "build: the program, optimised, into build/release"
cmake --preset release --log-level=NOTICE >/dev/null
cmake --build --preset release --target dstrain

mkdir -p "$work"
if [[ -z $data ]]; then
  data=$work/bible.txt
  say "text: the King James Bible, from Debian's bible-kjv, into $data"
  bible -f Gen1:1-Rev22:21 >"$data"
else
  say "text: $data"
fi
echo "$(wc -c <"$data") bytes; it begins:"
head -n 3 "$data" | cut -c 1-100

precision=()
# Processors with bf16 instructions multiply bf16 two to three times as fast as fp32, others more slowly.
if grep -qwE 'amx_bf16|avx512_bf16' /proc/cpuinfo; then
  precision=(--set bf16.enabled=true)
fi
train=("$dstrain" --num_gpus 2 --config configs/quickstart.json --device cpu --data "$data" "${precision[@]}")

# Prints how many steps take three minutes: a probe of 8 steps says how long one takes, its first ones aside.
measured_steps() {
  local probe=$work/probe step_ms
  rm -rf "$probe"
  "${train[@]}" --output "$probe" --steps 8 --ignore scheduler --set dstrain.save_last=false --set dstrain.eval_samples=2 >/dev/null || return
  step_ms=$(sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$probe/metrics.jsonl" | tail -n 5 | sort -n | sed -n 3p)
  rm -rf "$probe"
  awk -v ms="$step_ms" -v most="$(sed -n 's/.*"steps": *\([0-9]*\).*/\1/p' configs/quickstart.json)" '
    BEGIN {
      steps = int(180000 / ms)
      if (steps > most) steps = most
      if (steps < 60) steps = 60
      printf "%d\n", steps
      printf "a step takes %.0f ms here: %d steps, about %.0f s\n", ms, steps, steps * ms / 1000 >"/dev/stderr"
    }'
}

# What the run in $work/run was begun with, beside its number of steps.
begun_with="$(realpath "$data")|${precision[*]:-fp32}"
goes_on=(--overwrite)
saved=$(ls "$work/run/checkpoints" 2>/dev/null | sed -n 's/^step_//p' | sort -n | tail -n 1 || true)
if [[ -n $saved && -r $work/run.txt ]] && { read -r last_steps && read -r last_begin; } <"$work/run.txt" &&
  [[ $last_begin == "$begun_with" && ${steps:-$last_steps} == "$last_steps" ]] && ((saved < last_steps)); then
  steps=$last_steps
  goes_on=(--resume "$work/run")
  say "train: goes on with the run in $work/run, up to step $steps"
else
  if [[ -z $steps ]]; then
    say "measure: how long a step takes on this machine"
    steps=$(measured_steps)
  fi
  printf '%s\n%s\n' "$steps" "$begun_with" >"$work/run.txt"
  say "train: configs/quickstart.json on 2 ranks${precision:+, in bf16,} into $work/run"
fi
# A run that is killed goes on from its last checkpoint.
command=("${train[@]}" --steps "$steps" --save_interval 100 --set dstrain.keep_last=2 --output "$work/run" "${goes_on[@]}")
echo "${command[*]}"
"${command[@]}"

# metrics.jsonl holds one flat object per step, and one per validation.
values() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" "$work/run/metrics.jsonl"; }
first() { values "$1" | awk 'NR == 1 { printf "%.3f", $1 }'; }
last() { values "$1" | awk 'END { printf "%.3f", $1 }'; }
say "result, in nats per character"
echo "training loss:   first step $(first loss), last step $(last loss)"
echo "validation loss: $(last val_loss) (text that was held back)"

prompt=$(grep -m 1 . "$data" | cut -c 1-60)
prompt=${prompt% *}
say "generate: what the model writes after \"$prompt\""
"$dstrain" generate --run "$work/run" --prompt "$prompt" --tokens 400 --temperature 0.8
say "done. More: $dstrain --help, $dstrain plan --config configs/quickstart.json --num_gpus 2"
