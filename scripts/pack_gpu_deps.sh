#!/usr/bin/env bash
# Makes a folder for scripts/gpu_check.sh on a machine that has CUDA, but no network: the programs of a build with CUDA and
# the libraries that they need, and for a build there the headers and libraries of this machine's Debian packages
# (scripts/install_deps.sh). Prints the size of what then has to travel, git's files and the folder, and fails if that is
# too much.
#   scripts/pack_gpu_deps.sh [--limit MIB] [--programs BUILD] [FOLDER]
#     FOLDER      is deleted first if it exists (default: .deps)
#     --limit     the most that may travel, in MiB (default: 64)
#     --programs  the build folder whose programs are packed (default: none are): those that gpu_check.sh runs and that are
#                 there, such as build/cuda
# Open MPI is left out of the packages: a program that is built from the folder trains on the ranks of one machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
limit=64 programs=''
while [[ ${1:-} == --* ]]; do
  value=${2:?"pack_gpu_deps.sh: $1 needs a value"}
  case $1 in
    --limit) limit=$value ;;
    --programs) programs=$value ;;
    *) echo "pack_gpu_deps.sh: usage: scripts/pack_gpu_deps.sh [--limit MIB] [--programs BUILD] [FOLDER]" >&2 && exit 1 ;;
  esac
  shift 2
done
folder=${1:-.deps}

packages=(libhwy-dev libaio-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libxxhash-dev libssl-dev libpcre2-dev catch2 libboost-context-dev)
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
  grep -E '^/usr/(include|lib|share/cmake)/' | grep -vE '/lib(aio|boost.*|crypto|fmt|hwy.*|pcre2.*|ssl|xxhash)\.a$' |
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

# Packs the programs as bin, and as lib what they need of this machine's libraries but not what every machine has: the C and
# C++ libraries, and the driver's. lib/not_packed names NVIDIA's libraries, which a machine with CUDA or PyTorch has.
pack_programs() { # build
  local family name names stage file needed=()
  stage=$(mktemp -d)
  mkdir "$stage/bin" "$stage/lib"
  names=(dstrain bench_cuda test_nccl)
  for family in kernels products attention; do names+=("test_${family}_cuda" "test_${family}_emulated"); done
  for name in "${names[@]}"; do
    if [[ -x $1/bin/$name ]]; then strip -o "$stage/bin/$name" "$1/bin/$name"; fi
  done
  if [[ ! -x $stage/bin/dstrain ]]; then
    echo "pack_gpu_deps.sh: --programs: there is no $1/bin/dstrain: build it first" >&2
    exit 1
  fi
  mapfile -t needed < <(ldd "$stage"/bin/* | awk '$2 == "=>" { print $1, $3 }' | sort -u)
  : >"$stage/lib/not_packed"
  for name in "${needed[@]}"; do
    read -r name file <<<"$name"
    case $name in
      libc.so* | libm.so* | libpthread* | librt.so* | libdl.so* | libgcc_s* | libstdc++* | libcuda.so*) ;;
      libcu* | libnccl* | libnv*) echo "$name" >>"$stage/lib/not_packed" ;;
      *) cp "$file" "$stage/lib/$name" ;;
    esac
  done
  tar -C "$stage" -c bin lib | xz -T0 >"$folder/programs.tar.xz"
  rm -rf "$stage"
}
if [[ -n $programs ]]; then pack_programs "$programs"; fi

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
