#!/usr/bin/env bash
# Tests a run over ssh with paths and values that contain commands for a shell: they arrive unchanged or are refused,
# and no shell runs them.
#   tests/hosts/hostile.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
hosts_need_or_skip mpirun
dstrain=$(realpath "$1")

hosts_up 2
# A shell that runs the command makes a file of this name in its current directory, or in the home directory, where the
# shells of ssh start.
mark=hosts_ran_$$
name="it's \$(touch $mark) \`touch $mark\`; touch $mark; \"x\" & * -y"
mkdir "$HOSTS_DIR/$name"
cd "$HOSTS_DIR/$name"
training_files
mv c.json "$name.json"
mv text.txt "$name.txt"
hosts_file 1 1 >hosts
printf 'FROM_FILE=%s\n' "$name" >.deepspeed_env
export OMP_NUM_THREADS=1 NCCL_HOSTILE=$name
training_tmp

run() {
  hosts_on node1 "$dstrain" --hostfile hosts --config "$name.json" --data "$name.txt" \
    --output "$name out" --overwrite --export "VALUE=$name" "$@" >log 2>&1
}

run --steps 2 || fail 'a run with hostile paths and values' log
[[ -e "$name out/model.safetensors" ]] || fail 'the weights are not where they belong' log
echo 'hostile paths and values are data'

# While a run lasts, the ranks on both hosts have the values in their environment.
: >log  # so that lines of the run before are not taken for lines of this one
run --steps 100000000 &
launcher=$!
hosts_wait_until 'the run has begun' grep -q 'step=1 ' log
for host in node1 node2; do
  seen=0
  for process in $(hosts_pids "$host" "$name.json"); do
    grep -zq '^OMPI_COMM_WORLD_RANK=' "/proc/$process/environ" 2>/dev/null || continue
    seen=$((seen + 1))
    for variable in "VALUE=$name" "FROM_FILE=$name" "NCCL_HOSTILE=$name"; do
      grep -Fxzq "$variable" "/proc/$process/environ" || fail "a rank on $host lacks ${variable%%=*}" log
    done
  done
  ((seen == 1)) || fail "$seen ranks on $host" log
  echo "$host: the values have arrived"
done
for process in $(hosts_pids node1 "$name.json"); do kill -KILL "$process" 2>/dev/null || true; done
wait "$launcher" || true

for words in "--launcher_args=--mca x \"\$(touch $mark)\"" "--export=OMPI_MCA_x=\$(touch $mark)"; do
  status=0
  run --steps 2 "$words" || status=$?
  ((status == 1)) || fail "status $status of $words" log
  grep -q "hands it to other hosts' shells" log || fail "$words is not refused" log
  echo "refused: ${words%%=*} with a command for a shell"
done

[[ -z $(find "$HOSTS_DIR" ~ -maxdepth 3 -name "$mark") ]] ||
  fail 'a shell has run a name, a path or a value' log
echo 'no shell has run anything'
