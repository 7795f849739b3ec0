#!/usr/bin/env bash
# Causes faults at all moments of a run on two hosts with two ranks each, and prints a table of the results: whether
# the error named the right culprit, what was left on the hosts, and the seconds from the fault to the end of the run.
#   tests/hosts/faults.sh DSTRAIN [--times N] [--faults "kill stop ..."] [--moments "start step ..."] [--rows FILE]
# Fails if a culprit was not named, a process or file was left, an exit status was not the expected one, or a run
# ended more than 10 s after its fault could be detected. --rows FILE appends a row for each run to FILE; the table
# then covers all rows of the file.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
hosts_need_or_skip mpirun prlimit
# Starts this script again in a mount namespace of its own. The hosts see the file systems that it mounts; the rest of
# the machine does not.
[[ -n ${FAULTS_MOUNTS:-} ]] || FAULTS_MOUNTS=1 exec unshare --mount -- bash "$0" "$@"

dstrain=$(realpath "$1")
shift
times=1
faults='kill stop stop_mpirun stop_orted stop_agent abort exception memory disk config link sshd launcher'
moments='start first step save'
rows=
while (($# > 0)); do
  case $1 in
    --times) times=$2 ;;
    --faults) faults=$2 ;;
    --moments) moments=$2 ;;
    --rows) rows=$(realpath "$2") ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift 2
done

disk=$(mktemp -d) # the output directories of the runs
mount -t tmpfs -o size=32m tmpfs "$disk"
hosts_up 2
trap 'hosts_down; umount "$disk"; rmdir "$disk"' EXIT
cd "$HOSTS_DIR"
rows=${rows:-$HOSTS_DIR/rows}
training_files
hosts_file 2 2 >hosts
export OMP_NUM_THREADS=1
sed 's/"lr": 1e-3/"lr": 2e-3/' c.json >other.json
for node in node1 node2; do cp c.json "$node/own/c.json"; done  # each host has a file of its own
ln -s "$disk" out
training_tmp
group=/sys/fs/cgroup/memory/dstrain-faults-$$

# pid_there PROCESS: the id that a process has on its own host.
pid_there() { [[ -z $1 ]] || sed -n 's/^NSpid:.*\t//p' "/proc/$1/status" 2>/dev/null || true; }
# Finds the processes that faults hit, before the moment of the fault, and the ids that errors name them by.
find_targets() {
  rank1=$(ranks_on node1 | tail -n 1) there1=$(pid_there "$rank1")
  rank2=$(ranks_on node2 | tail -n 1) there2=$(pid_there "$rank2")
  launcher=$(launcher_on node1)
  mpirun=$(programs_on node1 '*/orterun')
  orted=$(daemon_on node2)
  agent=$(agent_on node2)
}
detects() { printf '%s' "$1" >expected; }

strikes() { begin=$(date +%s%N); }

# strike_FAULT sets the regular expression that the error of the run must match, and then causes the fault.
strike_kill() { detects "(rank [23] \(pid $there2 on node2\) was killed by|rank [23] with PID .* exited on) signal 9 \(Killed\)"; strikes; kill -KILL "$rank2"; }
strike_stop() { detects "rank [23] \(pid $there2 on node2\) is stopped"; strikes; kill -STOP "$rank2"; }
strike_stop_mpirun() { detects "mpirun \(pid $(pid_there "$mpirun")\) is stopped"; strikes; kill -STOP "$mpirun"; }
strike_stop_orted() { detects "daemon on node2 \(orted, pid $(pid_there "$orted")\) is stopped"; strikes; kill -STOP "$orted"; }
strike_stop_agent() { detects 'node2 was lost: no word from it'; strikes; kill -STOP "$agent"; }
strike_abort() { detects "(rank [01] \(pid $there1 on node1\) was killed by|rank [01] with PID .* exited on) signal 6 \(Aborted\)"; strikes; kill -ABRT "$rank1"; }
# Makes ranks fail with an exception. At the start they refuse a variable that only they get, and in a step numbers
# become infinite; options that run() passes cause both. While a checkpoint is saved, no further file can be opened.
strike_exception() {
  case $1 in
    start) detects 'the environment variable DSTRAIN_COMM is .broken.' ;;
    step) detects 'rank [0-3] \(pid [0-9]+ on node[12]\) failed .*non-finite' ;;
    save)
      detects "rank [0-3] \(pid [0-9]+ on node[12]\) failed .*Too many open files"
      strikes
      prlimit --pid "$rank2" --nofile=$(($(find "/proc/$rank2/fd" -printf '%f\n' | sort -n | tail -n 1) + 1))
      ;;
  esac
}
# Makes the memory of a cgroup run out. Of its processes the kernel kills the rank, because of oom_score_adj.
strike_memory() {
  detects "rank [23] .*signal 9 .*memory ran out"
  echo 1000 >"/proc/$rank2/oom_score_adj"
  mkdir -p "$group"
  echo $((64 << 20)) >"$group/memory.limit_in_bytes"
  echo "$rank2" >"$group/cgroup.procs"
  sleep 0.5  # until the agent has seen where the rank is
  strikes
  (echo "$BASHPID" >"$group/cgroup.procs" && head -c 200M /dev/zero | tail -n 1 >tail.out) 2>/dev/null || true
}
# Fills the file system that both hosts write to.
strike_disk() {
  detects 'rank [0-3] \(pid [0-9]+ on node[12]\) failed .*(No space left on device|0 B are free in out)|a checkpoint .* and 0 B are free in out'
  strikes
  head -c 1G /dev/zero >out/filler 2>/dev/null || true
}
strike_config() { detects 'node2 +input +.*c\.json is not the same there'; cp other.json node2/own/c.json; }
strike_link() { detects 'node2 was lost: no word from it'; strikes; hosts_link node2 down; }
strike_sshd() { detects 'node2 was lost: the connection to it ended'; strikes; hosts_sshd node2 stop; }
strike_launcher() { detects ''; strikes; kill -KILL "$launcher"; }

mend() {
  hosts_link node2 up
  [[ $1 != sshd ]] || hosts_sshd node2 start
  cp c.json node2/own/c.json
  [[ ! -d $group ]] || rmdir "$group" 2>/dev/null || true
}

status_of() {
  case $1/$2 in
    config/* | exception/start) echo 1 ;;
    disk/start) if grep -q 'a checkpoint .* are free in out' log; then echo 1; else echo 2; fi ;;  # before or after the look at the space
    launcher/*) echo 137 ;;
    *) echo 2 ;;
  esac
}

# The milliseconds after a fault until it can be told from slowness. For an exception at the start they begin with the
# launch.
detection_of() {
  case $1 in
    stop/* | stop_mpirun/* | stop_orted/*) echo 2000 ;;
    link/* | stop_agent/*) echo 5000 ;;
    exception/start) echo 10000 ;;
    *) echo 0 ;;
  esac
}

# Whether a fault is possible at a moment. A configuration is read only at the start, and the numbers of the first
# step are always finite.
possible() {
  case $1/$2 in
    config/start) return 0 ;;
    config/*) return 1 ;;
    exception/first) return 1 ;;
  esac
}

# await MOMENT PROCESS: waits until the run has come to the moment, or its process has ended; at most 40 s.
await() {
  local end=$((SECONDS + 40))
  until case $1 in
    start) (($(ranks_on node1 | wc -l) == 2 && $(ranks_on node2 | wc -l) == 2)) ;;
    first) grep -q ' a rank$' log ;;
    step) grep -q '^step=[3-9]' log ;;
    save) compgen -G 'out/checkpoints/*.tmp' >/dev/null ;;
  esac; do
    kill -0 "$2" 2>/dev/null && ((SECONDS < end)) || return 0
  done
}

# left FAULT: prints the processes and files that are left of the run. A stopped agent may stay, and its folders too:
# the next run on its host removes them (leftovers.sh).
left() {
  local process
  for process in $(hosts_pids node1) $(hosts_pids node2); do
    [[ $1 == stop_agent && $(tr '\0' ' ' <"/proc/$process/cmdline") == *' host_agent '* ]] || echo "$process"
  done
  [[ $1 != stop_agent ]] || return 0
  find "$TMPDIR" -mindepth 1 -maxdepth 1 -name 'dstrain-*'
}

# Prints the processes and files on the hosts in a form for people.
describe_left() {
  local process
  for process in $(hosts_pids node1) $(hosts_pids node2); do
    echo "$process $(sed -n 's/^State:\t//p' "/proc/$process/status") in $(cat "/proc/$process/wchan"): $(tr '\0' ' ' <"/proc/$process/cmdline" | head -c 120)"
  done 2>/dev/null
  find "$TMPDIR" -mindepth 1
}

# run FAULT MOMENT: starts a run, causes the fault at the moment, and appends a row: FAULT MOMENT NAMED LEFT END GONE
# STATUS EXPECTED LATEST. END and GONE are the milliseconds from the fault until dstrain has ended and until nothing of
# it is left; LATEST is the largest GONE that is accepted.
run() {
  local fault=$1 moment=$2 job begin end gone rank1 rank2 there1 there2 launcher mpirun orted agent='' status=0 named=yes count late watcher
  rm -rf out/* tmp/* log expected late
  local options=(--steps 100000 --save_interval 40 --set dstrain.save_required=true)
  [[ $fault/$moment != exception/start ]] || options+=(--export DSTRAIN_COMM=broken)
  [[ $fault/$moment != exception/step ]] || options=(--steps 100000 --set optimizer.params.lr=1e30)
  [[ $fault/$moment != exception/save ]] || options=(--steps 100000 --save_interval 10 --set dstrain.save_required=true)  # a checkpoint follows soon
  [[ $fault != config ]] || strike_config
  begin=$(date +%s%N)
  (hosts_on node1 timeout --foreground 90 "$dstrain" --hostfile hosts --config "$HOSTS_OWN/c.json" --output out "${options[@]}" >log 2>&1) &
  job=$!
  if [[ $fault != config ]]; then
    touch log
    await start "$job"
    find_targets
    case $fault/$moment in
      */start) ;;
      exception/step) await first "$job" ;;
      exception/save) await step "$job" ;;
      *) await "$moment" "$job" ;;
    esac
    [[ $fault/$moment == exception/start ]] || strikes  # that fault happens when ranks start
    "strike_$fault" "$moment"
  fi
  late=$((10000 + $(detection_of "$fault/$moment")))
  (sleep "$((late / 1000))" && { cat log && describe_left; } >late) >/dev/null 2>&1 &
  watcher=$!
  wait "$job" 2>/dev/null || status=$?
  end=$(date +%s%N)
  kill "$watcher" 2>/dev/null || true
  gone=$end
  while [[ -n $(left "$fault") ]] && ((gone < end + 20000000000)); do
    sleep 0.1
    gone=$(date +%s%N)
  done
  count=$(left "$fault" | wc -l)
  [[ -z $(cat expected) ]] || grep -Eq "$(cat expected)" log || named=no
  end=$(((end - begin) / 1000000)) gone=$(((gone - begin) / 1000000))
  echo "$fault $moment $named $count $end $gone $status $(status_of "$fault" "$moment") $late" >>"$rows"
  if [[ $named == no || $count != 0 || $status != $(status_of "$fault" "$moment") || $gone -gt $late ]]; then
    echo "--- $fault at $moment: status $status, left $count, $end ms, $gone ms, expected: $(cat expected)"
    grep -v '^step=' log || true
    describe_left
    [[ ! -e late ]] || { echo "-- after $late ms:" && grep -v '^step=' late; }
  fi >>wrong
  for process in $(hosts_pids node1; hosts_pids node2); do kill -KILL "$process" 2>/dev/null || true; done
  mend "$fault"
}

# Reads the rows of one fault at one moment, sorted by GONE, and prints their line of the table. Fails if a row is bad.
line() {
  awk '
    { named += $3 == "yes"; if ($4 > left) left = $4; if ($5 > exit_ms) exit_ms = $5; ms[NR] = $6; bad += $7 != $8 }
    END {
      printf "%-11s %-6s %5d %6s %5d %9.1f %8.1f %8.1f %7s\n", $1, $2, NR, named "/" NR, left,
             ms[int((NR + 1) / 2)] / 1000, ms[NR] / 1000, exit_ms / 1000, bad ? "WRONG" : $7
      exit named < NR || left > 0 || bad > 0 || ms[NR] > $9
    }'
}

failed=0
touch wrong
printf '%-11s %-6s %5s %6s %5s %9s %8s %8s %7s\n' fault moment runs named left 'median s' 'worst s' 'ended s' status
for fault in $faults; do
  for moment in $moments; do
    possible "$fault" "$moment" || continue
    for ((i = 0; i < times; ++i)); do run "$fault" "$moment"; done
    grep "^$fault $moment " "$rows" | sort -n -k 6 | line || failed=1
    cat wrong
    : >wrong
  done
done
exit "$failed"
