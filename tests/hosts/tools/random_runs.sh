# Functions for random_faults.sh: runs of several kinds, started in several ways, and what is left of them. Expects
# training.sh and the variables of random_faults.sh.

# The ways to start ranks, with the hosts and slots of each. `outside`: by a hostfile, on a host that has no ranks.
declare -A slots_of=([hostfile]='2 1 1' [outside]='2 2' [no_ssh]='2 1 1' [mpirun]='2 1 1')
# The kinds of runs, with their options. All have four ranks.
random_layouts() {
  mkdir -p init
  declare -gA layout_of=(
    [data]='--set zero_optimization.stage=2'
    [tensor]='--set tensor_parallel.autotp_size=2'
    [sequence]='--set sequence_parallel_size=2'
    [pipeline]='--set pipeline.stages=2'
    [adapter]='--set dstrain.lora.r=4 --init_weights init/model.safetensors'
    [nvme]="--set zero_optimization.stage=1 --set zero_optimization.offload_optimizer.device=nvme --set zero_optimization.offload_optimizer.nvme_path=$HOSTS_OWN/nvme"
  )
}
by_hand=(--no_ssh --nnodes 3 --master_addr "$HOSTS_NETWORK.1")

# host_of_command: prints the host on which the command of the run is given.
host_of_command() { [[ $front == outside ]] && echo node3 || echo node1; }

# start: starts the run in the background. Sets $job to the command that ends with the run, and $others to those of other
# nodes.
start() {
  others=()
  case $front in
    hostfile | outside) hosts_on "$(host_of_command)" "$dstrain" "${words[@]}" --hostfile "hosts_$front" >log 2>&1 & ;;
    mpirun)
      hosts_on node1 mpirun --hostfile hosts_mpirun -np 4 --bind-to none -x OMP_NUM_THREADS -x TMPDIR \
        "$dstrain" "${words[@]}" >log 2>&1 &
      ;;
    no_ssh)
      local rank
      for rank in 1 2; do
        hosts_on "node$((rank + 1))" "$dstrain" "${words[@]}" "${by_hand[@]}" --num_gpus 1 --node_rank "$rank" >"log$rank" 2>&1 &
        others+=("$!")
      done
      hosts_on node1 "$dstrain" "${words[@]}" "${by_hand[@]}" --num_gpus 2 --node_rank 0 >log 2>&1 &
      ;;
  esac
  job=$!
}

command_of() { tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" || true; }
is_rank() { grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$1/environ"; }

# victims HOST: prints the processes on the host that are what $victim names.
victims() {
  local process line parent
  for process in $(hosts_pids "$1"); do
    line=$(command_of "$process")
    parent=$(command_of "$(ps -o ppid= -p "$process" | tr -d ' ')")
    case $victim in
      both) [[ $line == "$dstrain host_agent"* ]] ;;
      agent) [[ $line == "$dstrain host_agent"* && $parent == "$dstrain host_agent"* ]] ;;
      guard) [[ $line == "$dstrain host_agent"* && $parent != "$dstrain host_agent"* ]] ;;
      watcher) [[ $line == 'dstrain host_watch'* ]] ;;
      rank) [[ $line == "$dstrain --config"* ]] && is_rank "$process" ;;
      launcher | node) [[ $line == "$dstrain --config"* || $line == mpirun* ]] && ! is_rank "$process" ;;
      everyone) [[ $line != bash* && $line != sleep* ]] ;;
    esac && echo "$process"
  done
  return 0
}

await() { # SECONDS COMMAND...: waits until the command succeeds; fails after so many seconds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
# The user's own mpirun may hang where a host has no network; dstrain has ended when its processes have.
has_ended() {
  ! kill -0 "$1" 2>/dev/null || { [[ $front/$victim == mpirun/host ]] && grep -q '^dstrain: error: ' log && nothing_left; }
}
# Until hosts without ssh have met, one that has ended may come again, and the others wait for it.
met() { [[ $front != no_ssh ]] || has_ended "$job" || (($(grep -cE '^node [12]: ' log) == 2)); }
found() { [[ -n $(victims "$host") ]]; }
has_begun() { has_ended "$job" || grep -q '^step=' log; }
steps() { { cat out/metrics.jsonl 2>/dev/null || true; } | wc -l; }
went_on() { has_ended "$job" || (($(steps) > before + 2)); }

# Prints what is left of the run on the hosts.
left() {
  local node process line
  for node in $nodes; do
    for process in $(hosts_pids "$node"); do
      line=$(command_of "$process")
      [[ $front/$victim == mpirun/host && $line =~ ^(mpirun|orted|/usr/bin/ssh)\  ]] || echo "on $node: $process $(sed -n 's/^State:\t//p' "/proc/$process/status" 2>/dev/null) $line"
    done
    find "$node/own/nvme" -type f
    nsenter -t "${HOSTS_INIT[$node]}" --mount find "$TMPDIR" -mindepth 1 -maxdepth 1 -name 'dstrain-*'
  done
  find out -maxdepth 1 -name '.dstrain-*' 2>/dev/null || true
}
nothing_left() { [[ -z $(left) ]]; }

# continue_all: continues what was stopped, and the commands that have stopped with it.
continue_all() {
  [[ -z $process ]] || kill -CONT "$process" 2>/dev/null || true
  kill -CONT "$job" "${others[@]}" 2>/dev/null || true
  local command
  for command in "$job" "${others[@]}"; do
    kill -CONT $(cat "/proc/$command/task/$command/children" 2>/dev/null) 2>/dev/null || true
  done
}

# compare_steps FILE...: fails unless the steps that two files of metrics both have are the same bits. Prints how many.
compare_steps() {
  python3 - "$@" <<'PY'
import json, sys
def steps(path):
    found = {}
    for line in open(path):
        if not line.endswith("\n"): continue
        m = json.loads(line)
        if "loss" in m: found[m["step"]] = [m[k] for k in ("loss", "grad_norm", "lr", "tokens", "skipped")]
    return found
a, b = (steps(p) for p in sys.argv[1:])
both = sorted(a.keys() & b.keys())
for s in both:
    if a[s] != b[s]: sys.exit(f"step {s} has {b[s]}, and had {a[s]}")
print(len(both))
PY
}

# resumes: goes on with the run from its newest checkpoint for three steps, in the way in which it was started, and
# compares with a run of the same kind on one host that nothing has befallen. Adds to $wrong what is wrong; sets $same to
# the number of steps that are the same bits.
resumes() {
  local newest last end reference=reference_$layout count
  newest=$(find out/checkpoints -mindepth 1 -maxdepth 1 -name 'step_*[0-9]' 2>/dev/null | sed 's/.*step_0*//' | sort -n | tail -n 1 || true)
  [[ -n $newest ]] || return 0
  last=$((newest + 3))
  cp out/metrics.jsonl before.jsonl
  words=(--config c.json ${layout_of[$layout]} "${options[@]}" --output out --resume out --steps "$last")
  resume_words
  start
  local status=0
  end=$((SECONDS + 120))
  while kill -0 "$job" 2>/dev/null && ((SECONDS < end)); do sleep 0.1; done
  kill -0 "$job" 2>/dev/null && wrong+='; the resumed run does not end' && kill -KILL "$job" 2>/dev/null
  wait "$job" "${others[@]}" 2>/dev/null || status=$?
  if ((status > 0)); then
    wrong+="; the resumed run has status $status: $(grep '^dstrain: error: ' log | head -n 1)"
    return 0
  fi
  await 20 nothing_left || wrong+="; left by the resumed run: $(left)"
  # The reference goes as far as any run of this kind went.
  words=(--config c.json ${layout_of[$layout]} "${options[@]}" --num_gpus 4 --output "$reference" --steps "$last")
  if [[ -d $reference ]]; then
    words+=(--resume "$reference")
    resume_words
  fi
  if ((last > ${reached[$layout]:-0})); then
    hosts_on node1 "$dstrain" "${words[@]}" >"$reference.log" 2>&1 || { wrong+="; no reference: $(tail -n 1 "$reference.log")" && return 0; }
    reached[$layout]=$last
  fi
  same=$(compare_steps out/metrics.jsonl "$reference/metrics.jsonl" 2>&1) || { wrong+="; other bits: $same" && same=0; }
  count=$(compare_steps before.jsonl out/metrics.jsonl 2>&1) || wrong+="; other bits than before the fault: $count"
}
# resume_words: a resumed run takes its weights from the checkpoint.
resume_words() {
  local kept=() i
  for ((i = 0; i < ${#words[@]}; ++i)); do
    [[ ${words[i]} != --init_weights ]] && kept+=("${words[i]}") || i=$((i + 1))
  done
  words=("${kept[@]}")
}
