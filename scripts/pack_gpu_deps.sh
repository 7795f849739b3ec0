#!/usr/bin/env bash
# Copies the headers and libraries that dstrain is built from out of this machine's Debian packages
# (scripts/install_deps.sh) into a folder, for scripts/gpu_check.sh on a machine that has CUDA and CMake,
# but no network.
#   scripts/pack_gpu_deps.sh [FOLDER]      FOLDER (default: .deps) is deleted first if it exists
# Open MPI is left out, so that a program that is built from the folder trains on one rank only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-.deps}

packages=(libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev
  libxxhash-dev catch2 libboost-context-dev)
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
  grep -E '^/usr/(include|lib|share/cmake)/' | grep -vE '/lib(boost.*|fmt|hwy.*|spdlog|xxhash)\.a$' |
  while read -r path; do [[ -f $path || -L $path ]] && echo "$path"; done |
  tar -C / --no-recursion -cf - --files-from=<(sed 's|^/||') --transform='s|^/||' 2>/dev/null |
  tar -C "$folder" -xf -

# Prints the headers that Boost's fibers need, and the files that its CMake files look for, because all headers of Boost
# together have 150 MB.
boost_files() {
  echo '#include <boost/context/fiber.hpp>' | g++ -std=c++20 -x c++ -M - | tr ' \\' '\n\n' |
    grep -E '^/usr/include/boost/'
  echo /usr/include/boost/version.hpp
  find /usr/lib -path '*/cmake/Boost-1*' -type f
  find /usr/lib -path '*/cmake/boost_headers-1*' -type f
  find /usr/lib -path '*/cmake/BoostDetectToolset-1*' -type f
}
boost_files | sort -u | sed 's|^/||' | tar -C / --files-from=- -cf - | tar -C "$folder" -xf -

echo "packed ${#wanted[@]} packages into $folder: $(du -sh "$folder" | cut -f1)"
