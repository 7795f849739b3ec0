#!/usr/bin/env bash
# Verifies random layouts (scripts/random_layouts.py) with the address and undefined-behaviour sanitizer, and with the thread
# sanitizer. Builds dstrain with both, which takes longest. Exit status 1 if anything was found.
#   scripts/sanitize_layouts.sh [--address 300] [--thread 100] [--seed 1]
# A number of 0 leaves a sanitizer out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

address=300
thread=100
seed=1
while (($# > 0)); do
  case $1 in
    --address) address=$2 ;;
    --thread) thread=$2 ;;
    --seed) seed=$2 ;;
    *) echo "scripts/sanitize_layouts.sh: there is no option $1: expected --address, --thread or --seed" >&2 && exit 1 ;;
  esac
  shift 2
done

status=0
layouts() { # preset cases
  (($2 > 0)) || return 0
  cmake --preset "$1" --log-level=NOTICE
  cmake --build --preset "$1" --target dstrain
  echo "$1:"
  scripts/random_layouts.py "build/$1/bin/dstrain" --cases "$2" --seed "$seed" || status=1
}
layouts asan "$address"
layouts tsan "$thread"
exit $status
