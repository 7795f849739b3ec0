#!/usr/bin/env bash
# Copies the headers and libraries that dstrain is built from out of this machine's Debian packages
# (scripts/install_deps.sh) into a folder, for scripts/gpu_check.sh on a machine that has CUDA and CMake,
# but no network. Prints the size of what then has to travel, git's files and the folder, and fails if that is too much.
#   scripts/pack_gpu_deps.sh [--limit MIB] [FOLDER]
#     FOLDER   is deleted first if it exists (default: .deps)
#     --limit  the most that may travel, in MiB (default: 64)
# Open MPI is left out: a program that is built from the folder trains on the ranks of one machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
limit=64
if [[ ${1:-} == --limit ]]; then
  limit=${2:?"pack_gpu_deps.sh: --limit needs a value"}
  shift 2
fi
folder=${1:-.deps}

packages=(libhwy-dev libaio-dev nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev
  libxxhash-dev libssl-dev catch2 libboost-context-dev)
installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
for package in "${packages[@]}"; do
  if ! installed "$package"; then
    echo "the package $package is not installed here: run scripts/install_deps.sh first" >&2
    exit 1
  fi
done

# Collects the packages and the libraries that they need, without those of the compiler and of the system.
declare -A wanted
collect() {
  local package=$1 needs need
  [[ -n ${wanted[$package]:-} ]] && return
  wanted[$package]=1
  needs=$(dpkg-query -W -f='${Depends}' "$package" | tr ',|' '\n\n' | awk 'NF { print $1 }')
  for need in $needs; do
    need=${need%:any}
    case "$need" in
      libc6* | libgcc* | libstdc++* | libgomp*) ;;
      libboost-context* | catch2 | ocl-icd-*) if installed "$need"; then collect "$need"; fi ;;
      libboost*) ;;
      lib*) if installed "$need"; then collect "$need"; fi ;;
    esac
  done
}
for package in "${packages[@]}"; do collect "$package"; done

rm -rf "$folder"
mkdir -p "$folder"
# Copies files and links, without documentation, and without static libraries of which there is a shared version.
dpkg-query -L "${!wanted[@]}" | sort -u |
  grep -E '^/usr/(include|lib|share/cmake)/' | grep -vE '/lib(aio|boost.*|fmt|hwy.*|spdlog|xxhash)\.a$' |
  while read -r path; do [[ -f $path || -L $path ]] && echo "$path"; done |
  tar -C / --no-recursion -cf - --files-from=<(sed 's|^/||') --transform='s|^/||' 2>/dev/null |
  tar -C "$folder" -xf -

# Prints the headers of Boost that the sources need, and the files that its CMake files look for, because all headers of Boost
# together have 150 MB.
boost_files() {
  git grep -h '^#include <boost/' -- '*.h' '*.cpp' | sort -u | g++ -std=c++20 -x c++ -M - | tr ' \\' '\n\n' |
    grep -E '^/usr/include/boost/'
  echo /usr/include/boost/version.hpp
  find /usr/lib -path '*/cmake/Boost-1*' -type f
  find /usr/lib -path '*/cmake/boost_headers-1*' -type f
  find /usr/lib -path '*/cmake/BoostDetectToolset-1*' -type f
}
boost_files | sort -u | sed 's|^/||' | tar -C / --files-from=- -cf - | tar -C "$folder" -xf -

# Which commit is checked, for a machine that gets the files without git's history.
if git rev-parse HEAD >"$folder/commit" 2>/dev/null; then
  if [[ -n $(git status --porcelain) ]]; then sed -i 's/$/ with changes/' "$folder/commit"; fi
fi

files=$(git ls-files -z --cached --others --exclude-standard | xargs -0 cat 2>/dev/null | wc -c)
packed=$(find "$folder" -type f -print0 | xargs -0 cat | wc -c)
mib() { echo $((($1 + (1 << 20) - 1) >> 20)); }
total=$(($(mib "$files") + $(mib "$packed")))
echo "packed ${#wanted[@]} packages into $folder; what travels: $(mib "$files") MiB of git's files and $(mib "$packed")" \
  "MiB of this folder, $total of at most $limit MiB"
if ((total > limit)); then
  echo "pack_gpu_deps.sh: that is too much: see which files git lists (git ls-files, git status) and what is in $folder" >&2
  exit 1
fi
