#!/usr/bin/env bash
# Causes random faults in runs on three hosts: a random signal to a random process of a run that was started in a random
# way, or a pulled cable, at a random moment. Prints a line for each.
#   tests/hosts/random_faults.sh DSTRAIN [COUNT] [SEED]
# The same seed gives the same faults, but for the moment at which they meet the run. Fails if a run neither goes on nor
# ends within its limit, if it ends with status 0 or an error that names nothing, or if a process, a folder in the place
# of temporary files or a swap file is left on any host.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
count=${2:-20} seed=${3:-${DSTRAIN_SAMPLE:-$RANDOM}}
training_hosts "$1" 3
training_by_mpirun
training_tmp
hosts_file 1 1 1 >hosts
nodes='node1 node2 node3'
RANDOM=$seed
for host in $nodes; do mkdir "$host/own/nvme"; done

options=(--config c.json --steps 100000000 --save_interval 200 --set dstrain.keep_last=1 --set train_batch_size=12
  --set steps_per_print=1 --set dstrain.silence_s=3)
on_disk=(--set zero_optimization.stage=1 --set zero_optimization.offload_optimizer.device=nvme
  --set "zero_optimization.offload_optimizer.nvme_path=$HOSTS_OWN/nvme")

one_of() { # VARIABLE WORD...: sets the variable to one of the words
  local -n chosen=$1
  shift
  local -a list=("$@")
  chosen=${list[RANDOM % ${#list[@]}]}
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
      agent) [[ $line == "$dstrain host_agent"* && $parent == "$dstrain host_agent"* ]] ;;
      guard) [[ $line == "$dstrain host_agent"* && $parent != "$dstrain host_agent"* ]] ;;
      watcher) [[ $line == 'dstrain host_watch'* ]] ;;
      rank) [[ $line == "$dstrain --config"* ]] && is_rank "$process" ;;
      launcher | node) [[ $line == "$dstrain --config"* || $line == mpirun* ]] && ! is_rank "$process" ;;
    esac && echo "$process"
  done
  return 0
}

# start: starts the run in the background. Sets $job to the command that ends with the run, and $others to those of other
# nodes.
start() {
  others=()
  case $front in
    hostfile) hosts_on node1 "$dstrain" "${words[@]}" --hostfile hosts >log 2>&1 & ;;
    mpirun) hosts_on node1 "${by_mpirun[@]/#4/3}" "${words[@]}" >log 2>&1 & ;;
    no_ssh)
      local rank
      for rank in 1 2; do
        hosts_on "node$((rank + 1))" "$dstrain" "${words[@]}" "${by_hand[@]}" --node_rank "$rank" >"log$rank" 2>&1 &
        others+=("$!")
      done
      hosts_on node1 "$dstrain" "${words[@]}" "${by_hand[@]}" --node_rank 0 >log 2>&1 &
      ;;
  esac
  job=$!
}
by_hand=(--num_gpus 1 --no_ssh --nnodes 3 --master_addr "$HOSTS_NETWORK.1")

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
  done
  find tmp -mindepth 1 -maxdepth 1 -name 'dstrain-*'
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

# fault: starts a run and causes a fault. Sets $result to what came of it, and $wrong to what is wrong with that.
fault() {
  local status=0
  words=("${options[@]}" --output out)
  ((RANDOM % 3)) || words+=("${on_disk[@]}")
  one_of moment start step
  # Before the ranks run, mpirun alone waits for a host without a network.
  [[ $front != mpirun || $victim != host ]] || moment=step
  delay=$((RANDOM % 20))
  wrong='' result='' process=''
  rm -rf out log log1 log2
  touch log
  start
  await 60 met || wrong='the nodes did not meet'
  [[ $moment == start ]] || await 60 has_begun || wrong='the run did not begin'
  if [[ $victim != host ]]; then
    await 60 found || wrong="there is no $victim on $host"
    sleep "$((delay / 10)).$((delay % 10))"
    process=$(victims "$host")
    process=${process%%$'\n'*}
    [[ -z $process ]] || kill -"$signal" "$process" 2>/dev/null || true
  else
    sleep "$((delay / 10)).$((delay % 10))"
    hosts_link "$host" down
  fi
  before=$(steps) struck=$SECONDS
  # A launching process that is suspended before it has started the ranks starts them when it is continued.
  if [[ $signal/$victim == STOP/launcher ]] && ((before == 0)); then
    sleep 6
    continue_all
    struck=$SECONDS
  fi
  # What the fault does not touch goes on, and so do ranks whose launching process is suspended.
  if await 40 has_ended_or_goes_on && ! has_ended "$job"; then
    result='goes on'
    continue_all
    victim_was=$victim victim=launcher
    kill -TERM $(victims node1) 2>/dev/null || true
    victim=$victim_was
  fi
  await 40 has_ended "$job" || wrong+="; the run does not end"
  continue_all
  # What is left of it ends before the command is waited for, which may never end by itself.
  await 30 nothing_left || wrong+="; left: $(left)"
  [[ $victim != host ]] || hosts_link "$host" up
  local node
  for node in $nodes; do kill -KILL $(hosts_pids "$node") 2>/dev/null || true; done
  wait "$job" 2>/dev/null || status=$?
  result+="${result:+, }status $status"
  ((status > 0)) || wrong+='; status 0'
  [[ $result != 'goes on, status '* || $status == 143 || $front == mpirun ]] || wrong+="; status $status after SIGTERM"
  if ((status == 2)); then
    error=$(grep '^dstrain: error: ' log | head -n 1 || true)
    grep -qE 'rank [0-2]|node[1-3]|mpirun' <<<"$error" || wrong+='; the error names nothing'
    result+=": ${error#dstrain: error: }"
  fi
  wait "$job" "${others[@]}" 2>/dev/null || true
  rm -rf tmp/*
}
# A fault that ends the run does so within twelve seconds.
has_ended_or_goes_on() { has_ended "$job" || { ((SECONDS - struck > 12)) && went_on; }; }

failed=0
for ((i = 1; i <= count; ++i)); do
  one_of front hostfile no_ssh mpirun
  case $front in
    hostfile) one_of victim launcher agent guard rank host ;;
    no_ssh) one_of victim launcher node agent guard rank host ;;
    mpirun) one_of victim launcher watcher rank host ;;
  esac
  case $victim in
    launcher) host=node1 ;;
    node) one_of host node2 node3 ;;
    *) one_of host node1 node2 node3 ;;
  esac
  one_of signal KILL STOP TERM
  [[ $victim != host ]] || signal=cable
  fault
  printf '%3d %-8s %-8s %-5s %-5s %-5s +%d.%d s  %s%s\n' "$i" "$front" "$victim" "$host" "$signal" "$moment" \
    $((delay / 10)) $((delay % 10)) "$result" "${wrong:+  WRONG: $wrong}"
  [[ -z $wrong ]] || { failed=$((failed + 1)) && tail -n 30 log log1 log2 2>/dev/null | grep -v '^step=' || true; }
done
echo "$failed of $count faults came out wrong (seed $seed)"
((failed == 0))
