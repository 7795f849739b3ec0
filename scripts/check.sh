#!/usr/bin/env bash
# Checks a change while a developer works on it. Before a change is merged, .ci/run must pass, which checks more.
#   scripts/check.sh [--quick] [--preset NAME] [REVISION]
# The change consists of the files that differ from REVISION, and of new files. REVISION is HEAD if it is not given,
# or the commit before HEAD if no file differs from HEAD.
#   --quick   checks the format of the changed files, runs clang-tidy on them, builds their modules and runs the unit
#             tests of these, and runs the tests that read the sources (tests/meta, tests/scripts). This takes up to
#             90 s if one source file has changed and everything else is built.
#   else      checks the format of all files, runs clang-tidy on the changed ones, builds everything, and runs every
#             unit test
#   --preset  the CMake preset to build (default: release); dev compiles a changed file without its neighbours
# Prints the duration of each part, and the tests that only .ci/run runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick='' preset=release base=''
while (($# > 0)); do
  case "$1" in
    --quick) quick=yes ;;
    --preset) preset=${2:?"check.sh: --preset needs a name"} && shift ;;
    -*)
      echo "usage: scripts/check.sh [--quick] [--preset NAME] [REVISION]" >&2
      exit 1
      ;;
    *) base=$1 ;;
  esac
  shift
done

changed_since() {
  git diff --name-only --diff-filter=d "$1"
  git ls-files --others --exclude-standard
}
changed=$(changed_since "${base:-HEAD}")
if [[ -z $changed && -z $base ]]; then changed=$(changed_since HEAD~1); fi
if [[ -z $changed ]]; then
  echo "check.sh: no file differs from ${base:-HEAD}" && exit 0
fi
sources=$(grep -E '\.(h|cpp)$' <<<"$changed" || true)

started=$SECONDS
step() {
  local name=$1 from=$SECONDS
  shift
  "$@"
  printf '== %s: %d s\n' "$name" $((SECONDS - from))
}

format() {
  if [[ -n $quick ]]; then echo "$sources"; else git ls-files -- '*.h' '*.cpp'; fi |
    xargs -r clang-format --dry-run -Werror
}

# Prints the folders of tests/ that test the changed files.
folders() {
  local file folder
  while read -r file; do
    case "$file" in
      runtime/*) folder=tests/${file#runtime/} ;;
      kernels/cpu/products/* | kernels/cuda/products/*) folder=tests/kernels/parity/products ;;
      kernels/cpu/attention/* | kernels/cuda/attention/*) folder=tests/kernels/parity/attention ;;
      kernels/cuda/emulation/*) folder=tests/kernels/cuda/emulation ;;
      kernels/*) folder=tests/kernels/parity/ops ;;
      models/*) folder=tests/ir ;;
      launcher/*) folder=tests/launcher ;;
      benchmarks/*) folder=tests/benchmarks ;;
      tests/*/*) folder=$file ;;
      *) continue ;;
    esac
    until [[ -e $folder/CMakeLists.txt || $folder == tests || $folder == . ]]; do folder=$(dirname "$folder"); done
    # The targets of tests and of tests/kernels include all folders below them, so these two are left out.
    case "$folder" in tests | tests/kernels | .) ;; *) echo "$folder" ;; esac
  done <<<"$changed" | sort -u
}

# configure PRESET: configures the build folder, if it is new or a CMake file has changed.
configure() {
  if [[ ! -f build/$1/build.ninja ]]; then cmake --preset "$1" --log-level=NOTICE; fi
  cmake --build "build/$1" --target build.ninja
}

build() {
  configure "$preset"
  if [[ -n $quick ]]; then
    cmake --build --preset "$preset" --target "${read_sources[@]/%//all}" "${tested[@]/%//all}"
  else
    cmake --build --preset "$preset"
  fi
}

tests() {
  local folder
  if [[ -z $quick ]]; then
    ctest --preset "$preset" -L unit
    return
  fi
  for folder in "${read_sources[@]}" "${tested[@]}"; do
    ctest --test-dir "build/$preset/$folder" -L unit -j 2 --output-on-failure --no-tests=ignore
  done
}

# Runs clang-tidy on the changed sources of the modules. For a changed header it reads the source file of the same name.
tidy() {
  local file
  configure dev
  while read -r file; do
    file=${file%.*}.cpp
    if [[ $file =~ ^(kernels|launcher|models|runtime)/ && -f $file ]]; then echo "$file"; fi
  done <<<"$sources" | sort -u |
    xargs -r -P 2 -n 1 clang-tidy -p build/dev --quiet --warnings-as-errors='*' \
      --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-pragmas 2>/dev/null
}

mkdir -p build
read_sources=(tests/meta tests/scripts)
mapfile -t tested < <(folders | grep -vxE 'tests/(meta|scripts)' || true)

step 'format' format
# clang-tidy runs at the same time as the build, which does not use all cores while it waits for single files and the
# linker.
tidy >build/tidy.log 2>&1 &
tidying=$!
step 'build' build
step 'unit tests' tests
from=$SECONDS
if ! wait $tidying; then cat build/tidy.log && exit 1; fi
printf '== clang-tidy, after the tests: %d s\n' $((SECONDS - from))
if [[ -n $quick ]]; then
  echo "tested: ${read_sources[*]} ${tested[*]}, label unit; left to .ci/run: the labels dist, hosts and slurm, and other modules"
fi
printf '== passed in %d s\n' $((SECONDS - started))
