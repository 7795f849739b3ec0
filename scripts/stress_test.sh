#!/usr/bin/env bash
# Runs the tests of build/release again and again on a loaded machine: beside busy processes, and with process numbers
# that wrap around every 15 seconds, so that a number does not tell which process is older. Needs root.
#   scripts/stress_test.sh [--runs 5] [--cpu 4] [--no_table] [--random_faults 200] [--expert_layouts 500] [arguments for ctest, e.g. -L dist]
# Each run takes other samples of the long lists of cases, by a number that its line tells. Prints what failed in it or
# was skipped. Before the busy processes start, the plans of all layouts of ranks are proved (seconds), every cell of the
# table of stop signals is run once (half an hour; --no_table leaves it out), random faults on three hosts are caused
# (three quarters of an hour; --random_faults 0), and random layouts in which ranks divide experts are verified (a quarter of
# an hour; --expert_layouts 0).
# Tests with twelve processes in all run at a time, so that they get more of the cores than the busy processes do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=5
cpu=4
table=yes
random_faults=200
expert_layouts=500
while true; do
  case ${1:-} in
    --runs) runs=$2 && shift ;;
    --cpu) cpu=$2 && shift ;;
    --no_table) table=no ;;
    --random_faults) random_faults=$2 && shift ;;
    --expert_layouts) expert_layouts=$2 && shift ;;
    *) break ;;
  esac
  shift
done

if ((EUID != 0)); then
  echo "scripts/stress_test.sh sets the number of the next process, which needs root: run it with sudo" >&2
  exit 1
fi
scripts/install_deps.sh --ci # tests that miss a program are skipped
if ! command -v stress-ng >/dev/null; then
  apt-get update -q >/dev/null
  apt-get install -q -y --no-install-recommends stress-ng >/dev/null
fi
pid_max=$(</proc/sys/kernel/pid_max)
logs=$(mktemp -d)
background=()
trap 'kill "${background[@]}" 2>/dev/null || true' EXIT
status=0
build/release/bin/test_plan "in all layouts*" || status=1 # the runs below sample them
[[ $table == no ]] || bash tests/hosts/stop_table.sh build/release/bin/dstrain || status=1
((random_faults == 0)) || bash tests/hosts/random_faults.sh build/release/bin/dstrain "$random_faults" || status=1
((expert_layouts == 0)) ||
  scripts/random_layouts.py build/release/bin/dstrain --cases "$expert_layouts" --experts --seed "$RANDOM" || status=1
stress-ng --cpu "$cpu" --quiet &
background+=($!)
while sleep 15; do echo $((pid_max - 100)) >/proc/sys/kernel/ns_last_pid; done &
background+=($!)

passed=0
for ((run = 1; run <= runs; ++run)); do
  began=$SECONDS sample=$((RANDOM * 32768 + RANDOM))
  if DSTRAIN_SAMPLE=$sample ctest --preset release -j 12 "$@" >"$logs/$run.log" 2>&1; then
    passed=$((passed + 1))
  fi
  echo "run $run: $(grep 'tests passed' "$logs/$run.log") in $((SECONDS - began)) s (DSTRAIN_SAMPLE=$sample, $logs/$run.log)"
  sed -n '/^The following tests/,$p' "$logs/$run.log"
done
echo "$passed of $runs runs passed beside $cpu busy processes"
((passed == runs && status == 0))
