#!/usr/bin/env bash
# Installs the Debian packages that dstrain is built from, unless they are installed already.
#   scripts/install_deps.sh [--ci]      --ci: also what .ci/run needs (clang and its tools, an sshd)
# If no package is missing, it prints nothing and needs neither root nor sudo.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache
  libopenmpi-dev openmpi-bin libpmix-dev        # processes, hosts, messages
  libboost-context-dev                          # fibers of the emulated device
  libhwy-dev                                    # SIMD
  libaio-dev                                    # tensors on disk
  libssl-dev                                    # HMAC between hosts
  libpcre2-dev                                  # tokenizers of rare patterns
  libpng-dev libjpeg62-turbo-dev                # images
  nlohmann-json3-dev libcli11-dev libfmt-dev libxxhash-dev
  catch2                                        # tests
  libbenchmark-dev libdnnl-dev                  # benchmarks
  bible-kjv                                     # the text of scripts/quickstart.sh
)
ci_packages=(
  clang libclang-rt-14-dev libomp-dev clang-format clang-tidy
  openssh-server openssh-client iproute2        # tests on several hosts
  iperf3                                        # benchmarks/comm/two_hosts.py
  slurm-wlm munge                               # tests in a Slurm
)

case "${1:-}" in
  '') ;;
  --ci) packages+=("${ci_packages[@]}") ;;
  *)
    echo "usage: $0 [--ci]" >&2
    exit 1
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps.sh knows Debian's package manager only (Debian 12 is what dstrain is built" >&2
  echo "on). Install what these packages hold by other means: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]} == 0)) && exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "missing packages, and neither root nor sudo to install them. As root, run:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "apt-get failed (its output is above)" >&2
  exit 1
fi
