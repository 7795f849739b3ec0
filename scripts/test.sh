#!/usr/bin/env bash
# Installs what is missing, builds the preset `release` and runs its tests.
#   scripts/test.sh [--full] [arguments for ctest, e.g. -L unit]
# The tests with the most cases run a sample of them, which a number taken from the commit chooses, and a program that is
# tested on several numbers of ranks runs on every second one, unless arguments choose the tests. --full runs all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == --full ]]; then
  shift
  unset DSTRAIN_SAMPLE
elif [[ -z ${DSTRAIN_SAMPLE:-} ]] && commit=$(git rev-parse HEAD 2>/dev/null); then
  export DSTRAIN_SAMPLE=$((16#${commit:0:8}))
fi

# Prints a pattern of the tests that a sample leaves out: every second one of those that differ in the number of ranks alone,
# whose names end in it.
left_out() {
  ctest --preset release -N | sed -nE 's/^ *Test +#[0-9]+: (.+)_([0-9]+)$/\1 \2/p' | sort -k 1,1 -k 2,2n |
    awk -v number="$DSTRAIN_SAMPLE" '
      { at = $1 == family ? at + 1 : 0; family = $1; name[NR] = $1 "_" $2; place[NR] = at; many[$1] = at > 0; of[NR] = $1 }
      END {
        for (i = 1; i <= NR; ++i) if (many[of[i]] && (place[i] + number) % 2) list = list "|" name[i]
        print "^(" substr(list, 2) ")$"
      }'
}

echo "== packages"
scripts/install_deps.sh
echo "== build (build/release)"
cmake --preset release --log-level=NOTICE
cmake --build --preset release
echo "== tests (${DSTRAIN_SAMPLE:+long lists of cases and numbers of ranks sampled by number $DSTRAIN_SAMPLE; }all: --full)"
status=0
if [[ -n ${DSTRAIN_SAMPLE:-} ]] && (($# == 0)); then set -- -E "$(left_out)"; fi
ctest --preset release "$@" || status=$?
# A program may skip some of its cases; those that need another number of ranks run elsewhere.
if skipped=$(grep -h '^skipped: ' build/release/Testing/Temporary/LastTest.log | sort | uniq -c); then
  printf '== cases that were skipped, and in how many programs\n%s\n' "$skipped"
fi
exit "$status"
