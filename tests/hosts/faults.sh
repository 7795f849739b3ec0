#!/usr/bin/env bash
# Faults at all moments of a run on two hosts with two ranks each; prints a table of what came of them:
# whether the culprit was named right, what was left on the hosts, the seconds from the fault to the end.
#   tests/hosts/faults.sh DSTRAIN [--times N] [--faults "kill stop ..."] [--moments "start step ..."]
# Fails where a culprit was not named, a process or file was left, a status was another, or the end took
# more than 10 s after the fault was detected.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/netns.sh"
source "$here/training.sh"
hosts_need_or_skip mpirun prlimit

dstrain=$(realpath "$1")
shift
times=1
faults='kill stop abort exception memory disk config link sshd launcher'
moments='start first step save'
while (($# > 0)); do
  case $1 in
    --times) times=$2 ;;
    --faults) faults=$2 ;;
    --moments) moments=$2 ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift 2
done

hosts_up 2
cd "$HOSTS_DIR"
training_files
hosts_file 2 2 >hosts
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
sed 's/"lr": 1e-3/"lr": 2e-3/' c.json >other.json
for node in node1 node2; do cp c.json "$node/own/c.json"; done  # each host has its own
mkdir out tmp
export TMPDIR=$HOSTS_DIR/tmp  # for the run's own files, so that what is left can be told
group=/sys/fs/cgroup/memory/dstrain-faults-$$

# The newest rank of a host, as this script sees it, and as its own host does.
newest_rank() { hosts_pids "$1" "$dstrain --hostfile" | sort -n | tail -n 1; }
ranks_of() { hosts_pids "$1" "$dstrain --hostfile" | wc -l; }
pid_there() { sed -n 's/^NSpid:.*\t//p' "/proc/$1/status"; }
launcher() {
  local process
  for process in $(hosts_pids node1 "$dstrain --hostfile" | sort -n); do
    [[ $(tr '\0' ' ' <"/proc/$process/cmdline") == "$dstrain "* ]] && echo "$process" && return
  done
}
detects() { printf '%s' "$1" >expected; }

# Each fault strikes, and says by which regular expression the report must name it.
strike_kill() { local r; r=$(newest_rank node2); detects "(rank [23] \(pid $(pid_there "$r") on node2\) was killed by|rank [23] with PID .* exited on) signal 9 \(Killed\)"; kill -KILL "$r"; }
strike_stop() { local r; r=$(newest_rank node2); detects "rank [23] \(pid $(pid_there "$r") on node2\) is stopped"; kill -STOP "$r"; }
strike_abort() { local r; r=$(newest_rank node1); detects "(rank [01] \(pid $(pid_there "$r") on node1\) was killed by|rank [01] with PID .* exited on) signal 6 \(Aborted\)"; kill -ABRT "$r"; }
# At the start ranks refuse a variable that only they get, in a step numbers become infinite (run() sees to
# both); while saving no further file can be opened.
strike_exception() {
  local r
  case $1 in
    start) detects 'the environment variable DSTRAIN_COMM is .broken.' ;;
    step) detects 'rank [0-3] \(pid [0-9]+ on node[12]\) failed .*non-finite' ;;
    save)
      r=$(newest_rank node2)
      detects "rank [0-3] \(pid [0-9]+ on node[12]\) failed .*Too many open files"
      prlimit --pid "$r" --nofile=$(($(find "/proc/$r/fd" -printf '%f\n' | sort -n | tail -n 1) + 1))
      ;;
  esac
}
# The kernel chooses the rank when its group runs out of memory.
strike_memory() {
  local r
  r=$(newest_rank node2)
  detects "rank [23] .*signal 9 .*memory ran out"
  echo 1000 >"/proc/$r/oom_score_adj"
  mkdir -p "$group"
  echo $((64 << 20)) >"$group/memory.limit_in_bytes"
  echo "$r" >"$group/cgroup.procs"
  (echo "$BASHPID" >"$group/cgroup.procs" && head -c 200M /dev/zero | tail -n 1 >tail.out) 2>/dev/null || true
}
# A limit on file sizes refuses bytes as a full disk does.
strike_disk() {
  local r
  detects 'rank [01] \(pid [0-9]+ on node1\) failed .*(No space left on device|File too large)'
  for r in $(hosts_pids node1 "$dstrain --hostfile" | sort -n | tail -n 2); do prlimit --pid "$r" --fsize=1; done
}
strike_config() { detects 'node2 +input +.*c\.json is not the same there'; cp other.json node2/own/c.json; }
strike_link() { detects 'node2 was lost: no word from it'; hosts_link node2 down; }
strike_sshd() { detects 'node2 was lost: the connection to it ended'; hosts_sshd node2 stop; }
strike_launcher() { detects ''; kill -KILL "$(launcher)"; }

mend() {
  hosts_link node2 up
  [[ $1 != sshd ]] || hosts_sshd node2 start
  cp c.json node2/own/c.json
  [[ ! -d $group ]] || rmdir "$group" 2>/dev/null || true
}

status_of() {
  case $1/$2 in
    config/* | exception/start) echo 1 ;;
    launcher/*) echo 137 ;;
    *) echo 2 ;;
  esac
}

# What cannot happen: configurations are read at the start alone, a disk is first written to in a step,
# the first step's numbers are finite.
possible() {
  case $1/$2 in
    config/start) return 0 ;;
    config/*) return 1 ;;
    disk/start | exception/first) return 1 ;;
  esac
}

# Returns when the run has come to the moment, or has ended.
await() {
  local end=$((SECONDS + 40))
  until case $1 in
    start) (($(ranks_of node2) >= 2)) ;;
    first) grep -q ' a rank$' log ;;
    step) grep -q '^step=[3-9]' log ;;
    save) compgen -G 'out/checkpoints/*.tmp' >/dev/null ;;
  esac; do
    kill -0 "$2" 2>/dev/null && ((SECONDS < end)) || return 0
  done
}

left() {
  hosts_pids node1
  hosts_pids node2
  find "$TMPDIR" -mindepth 1 -maxdepth 1 -name 'dstrain-*'
}

# run FAULT MOMENT: one cell once; appends "NAMED LEFT MILLISECONDS STATUS" to results.
run() {
  local fault=$1 moment=$2 job begin end status=0 named=yes count waited
  rm -rf out/* tmp/* log expected
  local options=(--steps 100000 --save_interval 40)
  [[ $fault/$moment != exception/start ]] || options+=(--export DSTRAIN_COMM=broken)
  [[ $fault/$moment != exception/step ]] || options=(--steps 100000 --set optimizer.params.lr=1e30)
  [[ $fault != config ]] || strike_config
  begin=$(date +%s%N)
  (hosts_on node1 timeout --foreground 90 "$dstrain" --hostfile hosts --config "$HOSTS_OWN/c.json" --output out "${options[@]}" >log 2>&1) &
  job=$!
  if [[ $fault != config ]]; then
    touch log
    case $fault/$moment in
      exception/step) await first "$job" ;;
      exception/save) await step "$job" ;;
      *) await "$moment" "$job" ;;
    esac
    begin=$(date +%s%N)
    "strike_$fault" "$moment"
  fi
  wait "$job" 2>/dev/null || status=$?
  end=$(date +%s%N)
  for ((waited = 0; waited < 100; ++waited)); do
    [[ -n $(left) ]] || break
    sleep 0.1
  done
  count=$(left | wc -l)
  ((waited == 0)) || end=$(date +%s%N)
  [[ -z $(cat expected) ]] || grep -Eq "$(cat expected)" log || named=no
  echo "$named $count $(((end - begin) / 1000000)) $status" >>results
  if [[ $named == no || $count != 0 || $status != $(status_of "$fault" "$moment") ]]; then
    { echo "--- $fault at $moment: status $status, left $count, expected: $(cat expected)"; grep -v '^step=' log; left; } >>wrong || true
  fi
  for process in $(hosts_pids node1; hosts_pids node2); do kill -KILL "$process" 2>/dev/null || true; done
  mend "$fault"
}

failed=0
printf '%-10s %-6s %5s %6s %5s %9s %8s %7s\n' fault moment runs named left 'median s' 'worst s' status
for fault in $faults; do
  for moment in $moments; do
    possible "$fault" "$moment" || continue
    rm -f results
    for ((i = 0; i < times; ++i)); do run "$fault" "$moment"; done
    sort -n -k 3 results | awk -v fault="$fault" -v moment="$moment" -v want="$(status_of "$fault" "$moment")" '
      { named += $1 == "yes"; if ($2 > left) left = $2; ms[NR] = $3; status = $4; bad += $4 != want }
      END {
        printf "%-10s %-6s %5d %6s %5d %9.1f %8.1f %7s\n", fault, moment, NR, named "/" NR, left,
               ms[int((NR + 1) / 2)] / 1000, ms[NR] / 1000, bad ? "WRONG" : status
        exit named < NR || left > 0 || bad > 0 || ms[NR] > 16000
      }' || failed=1
  done
done
[[ ! -e wrong ]] || cat wrong
exit "$failed"
