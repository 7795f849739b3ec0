#!/usr/bin/env bash
# Tests dstrain in a real Slurm: srun in a batch script, a requeued job that resumes, one dstrain in a batch script
# that starts its ranks itself, faults of ranks, and srun without PMIx. The exit status is 77 if no Slurm can be
# started here.
#   slurm_test.sh DSTRAIN
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

dstrain=$(realpath "$1")
example=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../configs/slurm.sbatch")
for tool in munged slurmctld slurmd sbatch srun ss mpirun; do
  command -v "$tool" >/dev/null || { echo "no $tool here: skipped" && exit 77; }
done
((EUID == 0)) || { echo "a Slurm needs root here: skipped" && exit 77; }

folder=$(mktemp -d)
finish() {
  local status=$?
  if ((status != 0 && status != 77)); then tail -n 40 "$folder"/*.out "$folder"/slurm*.log || true; fi
  stop_cluster
  rm -rf "$folder"
}
trap finish EXIT
if ! start_cluster "$folder"; then
  cat "$folder"/daemons.log "$folder"/slurm*.log
  echo "Slurm does not start here: skipped"
  exit 77
fi

fail() {
  echo "FAILED: $*"
  exit 1
}
check() { "$@" || fail "$*"; }
# has_once FILE PATTERN: fails unless exactly one line of the file matches.
has_once() { [[ $(grep -cE "$2" "$1") == 1 ]] || fail "$1: not one line like '$2'"; }
# has_lines FILE N: whether the file has at least N lines.
has_lines() { (($(wc -l <"$1") >= $2)); }
job_is() { [[ $(scontrol -o show job "$1") == *JobState=$2* ]]; }
same_weights() { check cmp "$1/model.safetensors" plain/model.safetensors; }

cd "$folder"
for ((i = 0; i < 100; ++i)); do echo 'the quick brown fox jumps over the lazy dog'; done >text.txt
cat >c.json <<'JSON'
{
  "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 100,
  "dstrain": {
    "model": {"n_layer": 4, "n_embd": 64, "n_head": 2, "block_size": 32},
    "data": {"path": "text.txt"}, "steps": 1500, "save_interval": 100
  }
}
JSON
train="$dstrain --config c.json"
job() { printf '#!/bin/bash\n%s\n' "$1"; }

echo '-- without Slurm'
env -u SLURM_CONF $train --num_gpus 2 --output plain >plain.out 2>&1 || fail 'the run without Slurm'

echo '-- sbatch with srun: trains, is requeued, resumes'
id=$(PATH=$(dirname "$dstrain"):$PATH sbatch --parsable --ntasks=2 --output=requeued.out \
  "$example" c.json --output requeued)
wait_for 60 has_lines requeued/metrics.jsonl 300 || fail 'the job does not train'
scancel --signal=USR1 "$id"
wait_for 30 grep -q 'requeued 1 time' requeued.out || fail 'the job does not come back'
wait_for 60 job_is "$id" COMPLETED || fail 'the job does not end well'
has_once requeued.out "Slurm job $id, requeued 1 time: continues from step [0-9]+ of requeued$"
grep 'dstrain: error' requeued.out && fail 'the job did not stop by itself'
same_weights requeued
steps=$(sed -nE 's/^\{"step":([0-9]+),"loss".*/\1/p' requeued/metrics.jsonl)
[[ $steps == "$(seq 1500)" ]] || fail 'the steps of metrics.jsonl'

echo '-- a requeued job goes on with its own checkpoints, whatever it began from'
cp -r requeued began
job "srun $train --resume began/checkpoints/step_100 --steps 100000000" >began.sh
id=$(sbatch --parsable --requeue --ntasks=2 --output=began.out began.sh)
wait_for 60 grep -q 'set aside, as this run does not go on from them: step_' began.out || fail 'the job does not resume'
has_once began.out 'resumes after step 100 of began/checkpoints/step_100$'
wait_for 60 test -e began/checkpoints/step_1000/manifest.json || fail 'the job that resumes does not save'
scontrol requeue "$id"
wait_for 60 grep -qE 'requeued 1 time: continues from step [1-9][0-9]{3,} of began' began.out ||
  fail 'the requeued job does not go on with its own checkpoints'
scancel "$id"

echo '-- one dstrain in a batch script starts the ranks itself'
job "$train --output batch" >batch.sh
sbatch --wait --ntasks=2 --output=batch.out batch.sh >/dev/null || fail 'the batch job'
has_once batch.out '2 ranks on this node'
same_weights batch

echo '-- and does it by srun when told to'
job "$train --output forced --launcher slurm" >forced.sh
sbatch --wait --ntasks=2 --output=forced.out forced.sh >/dev/null || fail 'the batch job by srun'
has_once forced.out '2 ranks by srun'
same_weights forced

echo '-- a rank that is killed ends the step'
job "srun $train --output $folder/killed --steps 100000000" >killed.sh
id=$(sbatch --parsable --ntasks=2 --output=killed.out killed.sh)
wait_for 60 has_lines killed/metrics.jsonl 10 || fail 'the job does not train'
for process in $(pgrep -f "output $folder/killed"); do
  [[ $(cat "/proc/$process/comm") == dstrain ]] && rank=$process
done
kill -KILL "$rank"
wait_for 30 job_is "$id" FAILED || fail 'the job goes on'
has_once killed.out 'dstrain: error: rank [01] .*(was killed by signal 9|ended unexpectedly)'

echo '-- a rank that is stopped is named, and ends the step'
job "srun $train --output $folder/stopped --steps 100000000" >stopped.sh
id=$(sbatch --parsable --ntasks=2 --output=stopped.out stopped.sh)
wait_for 60 has_lines stopped/metrics.jsonl 10 || fail 'the job does not train'
kill -STOP "$(pgrep -nf "output $folder/stopped")"
wait_for 60 job_is "$id" FAILED || fail 'the job goes on'
has_once stopped.out 'dstrain: error: rank [01] .* is stopped'

echo '-- a job that is cancelled writes its weights and a checkpoint'
job "srun $train --output cancelled --steps 100000000" >cancelled.sh
id=$(sbatch --parsable --ntasks=2 --output=cancelled.out cancelled.sh)
wait_for 60 has_lines cancelled/metrics.jsonl 10 || fail 'the job does not train'
scancel "$id"
wait_for 30 job_is "$id" CANCELLED || fail 'the job is not cancelled'
wait_for 10 test -e cancelled/model.safetensors || fail 'there are no weights'

echo '-- srun without PMIx is told what to do'
srun --mpi=none --ntasks=2 $train --output none >none.out 2>&1 && fail 'srun without PMIx trains'
check grep -q 'srun --mpi=pmix' none.out

echo '-- wrong input is one error'
status=0
srun --ntasks=2 $train --data nowhere --output wrong >wrong.out 2>&1 || status=$?
((status == 1)) || fail "wrong input ends with $status"
has_once wrong.out 'dstrain: error: '

echo '-- a task that reads another configuration is refused'
echo "$train --output other --seed \$((SLURM_PROCID + 1))" >other.sh
status=0
srun --ntasks=2 bash other.sh >other.out 2>&1 || status=$?
((status == 1)) || fail "another configuration ends with $status"
has_once other.out 'error: rank 1 would compute another run than rank 0: dstrain.seed: 2 there, 1 here$'

echo '-- one task of srun starts ranks of its own'
srun --ntasks=1 $train --output inside --num_gpus 2 >inside.out 2>&1 || fail 'ranks inside one task'
same_weights inside
echo 'all well'
