#!/usr/bin/env bash
# Sends stop signals at random moments to runs that spend most time in matrix products, with every way to start ranks
# on one machine, in fp32 and fp16. Every run must end with status 128 + n for signal n, and must have written its
# weights and a checkpoint. Prints a line for each way to start ranks.
#   stop_signals.sh DSTRAIN [--times N] [--slurm]
# --times: the number of runs, one signal each (default: 12). --slurm: also starts ranks by srun, in a Slurm that the
# script starts (as root); the exit status is 77 if that is impossible.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../slurm/cluster.sh"

dstrain=$(realpath "$1")
times=12
slurm=
shift
while (($# > 0)); do
  case $1 in
    --times) times=$2 && shift ;;
    --slurm) slurm=yes ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

folder=$(mktemp -d)
run=0
finish() {
  local status=$?
  ((run == 0)) || kill -KILL "$run" 2>/dev/null || true
  [[ -z $slurm ]] || stop_cluster
  ((status == 0)) || tail -n 5 "$folder"/*.out 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT
cd "$folder"
for ((i = 0; i < 200; ++i)); do echo 'the quick brown fox jumps over the lazy dog'; done >text.txt
cat >c.json <<'JSON'
{
  "train_batch_size": 8, "steps_per_print": 1000,
  "dstrain": {
    "model": {"n_layer": 2, "n_embd": 256, "n_head": 4, "block_size": 128, "dropout": 0},
    "data": {"path": "text.txt"}, "steps": 1000000, "save_interval": 1000000
  }
}
JSON

fronts=('' '--num_gpus 2' 'mpirun --oversubscribe --bind-to none -np 1' 'mpirun --oversubscribe --bind-to none -np 2')
if [[ -n $slurm ]]; then
  start_cluster "$folder/slurm" || { echo 'Slurm does not start here: skipped' && exit 77; }
  fronts+=('srun -n 1' 'srun -n 2')
fi
signals=(TERM INT USR1 HUP)
declare -A passed failed

for ((i = 0; i < times; ++i)); do
  front=${fronts[i % ${#fronts[@]}]}
  signal=${signals[RANDOM % 4]}
  words=("$dstrain" --config c.json --output "out$i")
  ((i / ${#fronts[@]} % 2 == 0)) || words+=(--set fp16.enabled=true)
  if [[ $front == mpirun* || $front == srun* ]]; then
    # Of these signals mpirun and srun pass only SIGUSR1 on. For the others they end the ranks themselves.
    signal=USR1
    read -ra starter <<<"$front"
    words=("${starter[@]}" "${words[@]}")
  else
    read -ra options <<<"$front"
    words+=("${options[@]}")
  fi
  "${words[@]}" >"$i.out" 2>&1 &
  run=$!
  until [[ -s out$i/metrics.jsonl ]]; do
    kill -0 $run 2>/dev/null || { echo "the run ended by itself: ${words[*]}" && exit 1; }
    sleep 0.05
  done
  sleep "0.$(printf %03d $((RANDOM % 1000)))"
  kill -s "$signal" $run
  status=0
  wait $run || status=$?
  run=0
  name=${front:-one process}
  if ((status == 128 + $(kill -l "$signal"))) && [[ -s out$i/model.safetensors ]] &&
    compgen -G "out$i/checkpoints/step_*" >/dev/null; then
    passed[$name]=$((${passed[$name]:-0} + 1))
  else
    failed[$name]=$((${failed[$name]:-0} + 1))
    echo "${words[*]}: SIG$signal ended it with status $status; files: $(ls "out$i")"
    tail -n 3 "$i.out"
  fi
  rm -rf "out$i"
done

bad=0
for name in "${!passed[@]}" "${!failed[@]}"; do
  printf '%s: %d good, %d bad\n' "$name" "${passed[$name]:-0}" "${failed[$name]:-0}"
done | sort -u
for name in "${!failed[@]}"; do bad=$((bad + failed[$name])); done
((bad == 0))
