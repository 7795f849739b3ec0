#!/usr/bin/env bash
# Tests the collectives on two hosts with two ranks each, over a link that delays each frame by 50 ms and loses one
# frame in a hundred: they are slow, but their results are right.
#   tests/hosts/slow_link.sh TEST_COMM_COLLECTIVES
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/netns.sh"
hosts_need_or_skip mpirun python3
[[ -c /dev/net/tun ]] || hosts_skip 'there is no /dev/net/tun'
program=$(realpath "$1")

hosts_up 2
cd "$HOSTS_DIR"
hosts_file 2 2 >hosts
python3 "$here/tools/slow_link.py" "${HOSTS_INIT[node1]}" "${HOSTS_INIT[node2]}" 0.05 0.01 >link.log 2>&1 &
HOSTS_PROCESSES+=($!)
hosts_wait_until 'the slow link is there' grep -q ready link.log

sent() { hosts_on node1 sed -n 's/^ *slow0:\( *[0-9]*\)\{8\} *\([0-9]*\) .*/\2/p' /proc/net/dev; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
hosts_on node1 mpirun --hostfile hosts -np 4 --bind-to none --mca btl_tcp_if_include slow0 \
  -x OMP_NUM_THREADS "$program" 'many operations*' >run.log 2>&1 || {
  cat run.log
  exit 1
}
(($(sent) > 500000)) || {
  echo "only $(sent) bytes went over the slow link"
  exit 1
}
