#!/usr/bin/env bash
# Installs what is missing, builds the preset `release` and runs its tests.
#   scripts/test.sh [arguments for ctest, e.g. -L unit]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== packages"
scripts/install_deps.sh
echo "== build (build/release)"
cmake --preset release --log-level=NOTICE
cmake --build --preset release
echo "== tests"
ctest --preset release "$@"
