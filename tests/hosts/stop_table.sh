#!/usr/bin/env bash
# Tests signals to runs: every way to start ranks, who gets the signal, which signal, once or twice, and the moment. After
# a stop signal a run must end with status 128 + n for signal n and leave no process and no temporary file on any host;
# after a single signal in a step or in a save it must have written its weights and a checkpoint. After SIGUSR2 it must go
# on and write one trace with the same six steps of all ranks, and end as well after a later SIGTERM. Prints a line for
# each cell of this table that is wrong, and a line for each way to start ranks.
#   tests/hosts/stop_table.sh DSTRAIN [--cells N] [--only PATTERN] [--list]
# --cells N: runs N cells, which the number DSTRAIN_SAMPLE chooses (default: a random one). --only: the cells that match
# the extended regular expression, as "hostfile agents TERM once step". --list: prints the cells instead.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
source "$here/training.sh"
source "$here/../slurm/cluster.sh"

cells=0 only=. list=
program=$1
shift
while (($# > 0)); do
  case $1 in
    --cells) cells=$2 && shift ;;
    --only) only=$2 && shift ;;
    --list) list=yes ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift
done

# The ways to start ranks, each with those who may get the signal. `all` and `hostN` mean all processes of dstrain there.
declare -A whos=(
  [one]='launcher group'
  [local]='launcher group all'
  [hostfile]='launcher all host1 host2 agents'
  [no_ssh]='node0 node1 nodes all host1 host2 agents'
  [mpirun]='mpirun all host2 rank'
  [srun]='scancel all rank'
)
fronts='one local hostfile no_ssh mpirun srun'

print_cells() {
  local front who signal times moment
  for front in $fronts; do
    for who in ${whos[$front]}; do
      for signal in INT TERM HUP USR1 USR2; do
        # mpirun passes on no signal but SIGUSR1 and SIGUSR2, and ends its ranks by the others.
        [[ $front/$who != mpirun/mpirun || $signal == USR? ]] || continue
        for times in once twice; do
          for moment in start step save; do
            # Ranks that have not begun are ended by mpirun itself, in the time that its option gives them. A task of srun
            # that has not begun is ended by the signal, and srun ends the others by SIGKILL, whose status it then has.
            # SIGUSR2 ends a process that has not begun to receive signals, as ranks may be at the start.
            case $front/$who/$moment/$signal in
              mpirun/mpirun/start/* | srun/rank/start/*) ;;
              mpirun/*/start/USR2 | srun/*/start/USR2) ;;
              hostfile/all/start/USR2 | hostfile/host?/start/USR2 | no_ssh/all/start/USR2 | no_ssh/host?/start/USR2) ;;
              *) echo "$front $who $signal $times $moment" ;;
            esac
          done
        done
      done
    done
  done
}
chosen=$(print_cells | grep -E "$only")
((cells == 0)) || chosen=$(awk -v seed="${DSTRAIN_SAMPLE:-$RANDOM}" 'BEGIN { srand(seed) } { print rand(), $0 }' <<<"$chosen" |
  sort -n | sed -n "1,${cells}s/^[^ ]* //p" | sort)
[[ -z $list ]] || { echo "$chosen" && exit; }

training_hosts "$program" 2 python3
training_by_mpirun
hosts_file 1 1 >hosts
by_mpirun=(mpirun --hostfile hosts -np 2 --bind-to none -x OMP_NUM_THREADS -x OMP_WAIT_POLICY "$dstrain")
trap 'stop_cluster; hosts_down' EXIT
# A step takes long enough for a signal to arrive in it, and a checkpoint long enough to be seen while it is written.
cat >c.json <<'JSON'
{
  "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1000,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "dstrain": {
    "model": {"n_layer": 2, "n_embd": 192, "n_head": 4, "block_size": 64, "dropout": 0},
    "data": {"path": "text.txt"}, "steps": 1000000, "save_interval": 1, "keep_last": 1
  }
}
JSON

# all_of HOST [WORD]: prints the processes of dstrain on a host that have WORD in their command line.
all_of() {
  local process
  for process in $(hosts_pids "$@"); do
    [[ $(cat "/proc/$process/comm" 2>/dev/null) != dstrain ]] || echo "$process"
  done
}
# task_processes: prints the tasks of srun; the watcher beside them has no output directory.
task_processes() {
  local process
  for process in $(pgrep -f -- "--output $HOSTS_DIR/out "); do
    [[ $(cat "/proc/$process/comm" 2>/dev/null) != dstrain ]] || echo "$process"
  done
}

# start FRONT OPTION...: starts a run in the background. Sets `runs` to its processes, each leader of a group.
start() {
  local front=$1 words
  shift
  words=(--config c.json --output "$HOSTS_DIR/out" "$@")
  case $front in
    one) hosts_on node1 setsid "$dstrain" "${words[@]}" >log 2>&1 & ;;
    local) hosts_on node1 setsid "$dstrain" --num_gpus 2 "${words[@]}" >log 2>&1 & ;;
    hostfile) hosts_on node1 setsid "$dstrain" --hostfile hosts "${words[@]}" >log 2>&1 & ;;
    mpirun) hosts_on node1 setsid "${by_mpirun[@]}" "${words[@]}" >log 2>&1 & ;;
    srun) srun --mpi=pmix -n 2 "$dstrain" "${words[@]}" >log 2>&1 & ;;
    no_ssh)
      local node
      for node in 1 0; do
        hosts_on "node$((node + 1))" setsid "$dstrain" --num_gpus 1 --no_ssh --nnodes 2 --node_rank "$node" \
          --master_addr "$HOSTS_NETWORK.1" "${words[@]}" >"log$((1 - node))" 2>&1 &
        runs+=($!)
      done
      return
      ;;
  esac
  runs+=($!)
}

# targets FRONT WHO: prints the processes that get the signal.
targets() {
  case $1/$2 in
    */launcher | */node0) programs_on node1 "$dstrain" --config | while read -r p; do is_command "$p" && echo "$p"; done ;;
    */node1) programs_on node2 "$dstrain" --node_rank | while read -r p; do is_command "$p" && echo "$p"; done ;;
    */nodes) targets "$1" node0 && targets "$1" node1 ;;
    */group) targets "$1" launcher | sed 's/^/-/' ;;
    srun/all) task_processes ;;
    srun/rank) task_processes | head -n 1 ;;
    */all) all_of node1 && all_of node2 ;;
    */host1) all_of node1 ;;
    */host2) all_of node2 ;;
    */agents) all_of node1 host_agent && all_of node2 host_agent ;;
    */mpirun) programs_on node1 '*/orterun' ;;
    */scancel) task_processes ;;
    */rank) all_of node2 --config | head -n 1 ;;
  esac
}
# is_command PROCESS: whether the process leads the session in which it was started, which a rank does not.
is_command() { [[ $(ps -o sid= -p "$1" | tr -d ' ') == "$1" ]]; }

send() { # FRONT WHO SIGNAL
  if [[ $2 == scancel ]]; then
    scancel --signal="$3" "$(squeue -h -o %i)" 2>/dev/null || true
    return
  fi
  local processes
  mapfile -t processes < <(targets "$1" "$2")
  ((${#processes[@]} == 0)) || kill -s "$3" -- "${processes[@]}" 2>/dev/null || true
}

steps_done() { [[ ! -e out/metrics.jsonl ]] && echo 0 || wc -l <out/metrics.jsonl; }
alive() {
  local process
  for process in "${runs[@]}"; do kill -0 "$process" 2>/dev/null || return 1; done
}
# is_started FRONT WHO: whether those who get the signal are there. Nodes without ssh must have met, or the one that does
# not get the signal goes on to wait for the other; an agent must have begun, for ssh does not tell what ended it before.
is_started() {
  [[ -n $(targets "$1" "$2") ]] || return 1
  case $1/$2 in
    no_ssh/agents | hostfile/host2 | hostfile/agents | hostfile/all) [[ -n $(agent_on node2) ]] ;;
    no_ssh/*) grep -q 'has met node 0' log0 && grep -q 'node 1: node2' log1 ;;
  esac
}
# await FRONT WHO MOMENT: waits until the run has come to the moment and there is somebody to get the signal; fails if it
# ends before, or after a minute.
await() {
  local end=$((SECONDS + 60))
  until case $3 in
    start) [[ -s log || -s log1 ]] && is_started "$1" "$2" ;;
    step) (($(steps_done) >= 1)) ;;
    save) compgen -G 'out/checkpoints/*.tmp' >/dev/null ;;
  esac; do
    alive && ((SECONDS < end)) || return 1
  done 2>/dev/null
}

# await_trace FRONT: waits for the trace that SIGUSR2 asks for, and adds to $wrong what is wrong with it.
await_trace() {
  local end=$((SECONDS + 120)) ranks=2 fault
  [[ $1 != one ]] || ranks=1
  until compgen -G 'out/trace_step_*.json' >/dev/null; do
    if ! alive || ((SECONDS >= end)); then
      wrong+='; no trace'
      return
    fi
    sleep 0.05
  done
  fault=$(python3 - "$ranks" out/trace_step_*.json 2>&1 <<'PY'
import json, sys
ranks, files = int(sys.argv[1]), sys.argv[2:]
if len(files) != 1: sys.exit(f"{len(files)} traces")
first = int(files[0].rsplit("_", 1)[1].split(".")[0])
steps = {}
for e in json.load(open(files[0]))["traceEvents"]:
    if e["ph"] == "X" and e["tid"] == 0: steps.setdefault(e["pid"], []).append(int(e["name"].split()[1]))
if steps != {r: list(range(first, first + 6)) for r in range(ranks)}: sys.exit(f"{files[0]} has {steps}")
PY
  ) || wrong+="; $fault"
}

left() {
  if [[ $1 == srun ]]; then
    task_processes
  else
    hosts_pids node1
    hosts_pids node2
  fi
  find tmp -mindepth 1 -maxdepth 1 -name 'dstrain-*'
}

# run FRONT WHO SIGNAL TIMES MOMENT: one cell. Sets $wrong to what is wrong; empty if nothing is.
run() {
  local front=$1 who=$2 signal=$3 times=$4 moment=$5 expected status began process
  wrong='' runs=()
  rm -rf out log log0 log1
  local batch=4
  [[ $front == one ]] && batch=8
  # Under mpirun and srun a signal within a second after the first one does not count as the second.
  [[ $front$times != mpiruntwice && $front$times != sruntwice ]] || batch=24
  start "$front" --set "train_batch_size=$batch"
  await "$front" "$who" "$moment" || wrong+="; it did not come to the moment"
  began=$(steps_done)
  send "$front" "$who" "$signal"
  if [[ $times == twice ]]; then
    case $front in mpirun | srun) sleep 1.1 ;; *) sleep 0.1 ;; esac
    send "$front" "$who" "$signal"
  fi
  if [[ $signal == USR2 ]]; then
    await_trace "$front"
    signal=TERM times=once
    case $front in
      one | local | hostfile) send "$front" launcher TERM ;;
      no_ssh) send "$front" node0 TERM ;;
      *) send "$front" all TERM ;;
    esac
  fi
  expected=$((128 + $(kill -l "$signal")))
  for process in "${runs[@]}"; do
    timeout 60 tail --pid="$process" -f /dev/null || {
      wrong+='; it did not end'
      send "$front" all KILL
      kill -KILL "$process" 2>/dev/null || true # mpirun may wait for ever for a rank that was killed as it started
    }
    status=0
    wait "$process" 2>/dev/null || status=$?
    ((status == expected)) || wrong+="; status $status"
  done
  local end=$((SECONDS + 10))
  until [[ -z $(left "$front") ]] || ((SECONDS >= end)); do sleep 0.05; done
  [[ -z $(left "$front") ]] || wrong+="; left: $(left "$front" | wc -l)"
  if ((began > 0)) && [[ $times == once || $signal == HUP ]]; then
    [[ -s out/model.safetensors ]] || wrong+='; no weights'
    compgen -G 'out/checkpoints/step_*[0-9]' >/dev/null || wrong+='; no checkpoint'
  fi
}

declare -A good=() bad=()
slurm=
while read -r front who signal times moment <&3; do
  if [[ $front == srun && -z $slurm ]]; then
    slurm=no
    for tool in munged slurmctld slurmd srun ss; do command -v "$tool" >/dev/null || slurm=missing; done
    [[ $slurm == missing ]] || ! start_cluster "$HOSTS_DIR/slurm" || slurm=yes
    [[ $slurm == yes ]] || echo 'Slurm does not start here: its cells are left out'
  fi
  [[ $front != srun || $slurm == yes ]] || continue
  run "$front" "$who" "$signal" "$times" "$moment"
  if [[ -z $wrong ]]; then
    good[$front]=$((${good[$front]:-0} + 1))
    continue
  fi
  bad[$front]=$((${bad[$front]:-0} + 1))
  echo "WRONG: $front $who $signal $times $moment$wrong"
  tail -n 4 log log0 log1 2>/dev/null | sed 's/^/    /' || true
  for process in $(hosts_pids node1; hosts_pids node2); do kill -KILL "$process" 2>/dev/null || true; done
  rm -rf tmp/dstrain-*
done 3<<<"$chosen"

for front in $fronts; do
  [[ -z ${good[$front]:-}${bad[$front]:-} ]] || echo "$front: ${good[$front]:-0} cells good, ${bad[$front]:-0} wrong"
done
((${#bad[@]} == 0))
