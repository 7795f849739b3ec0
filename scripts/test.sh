#!/usr/bin/env bash
# Installs what is missing, builds the preset `release` and runs its tests.
#   scripts/test.sh [--full] [arguments for ctest, e.g. -L unit]
# The tests with the most cases run a sample of them, which a number taken from the commit chooses. --full runs all
# cases.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == --full ]]; then
  shift
  unset DSTRAIN_SAMPLE
elif [[ -z ${DSTRAIN_SAMPLE:-} ]] && commit=$(git rev-parse HEAD 2>/dev/null); then
  export DSTRAIN_SAMPLE=$((16#${commit:0:8}))
fi

echo "== packages"
scripts/install_deps.sh
echo "== build (build/release)"
cmake --preset release --log-level=NOTICE
cmake --build --preset release
echo "== tests (${DSTRAIN_SAMPLE:+long lists of cases sampled by number $DSTRAIN_SAMPLE; }all cases: --full)"
status=0
ctest --preset release "$@" || status=$?
# A program may skip some of its cases; those that need another number of ranks run elsewhere.
if skipped=$(grep -h '^skipped: ' build/release/Testing/Temporary/LastTest.log | sort | uniq -c); then
  printf '== cases that were skipped, and in how many programs\n%s\n' "$skipped"
fi
exit "$status"
