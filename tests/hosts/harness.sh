#!/usr/bin/env bash
# Tests netns.sh: the hosts that it makes have the properties that the other tests in this folder rely on.
#   tests/hosts/harness.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/netns.sh"
hosts_need_or_skip

holds() {
  local what=$1
  shift
  "$@" || { echo "FAILED: $what" >&2 && exit 1; }
  echo "$what"
}
fails() { ! "$@" 2>/dev/null; }
# A link that loses frames may need several attempts to connect.
reaches() { hosts_on "$1" ssh -o ConnectTimeout=30 "$2" true; }
is_cut_off_from() { ! hosts_on "$1" ssh -o ConnectTimeout=2 "$2" true 2>/dev/null; }

sleeps_on() { [[ -n $(hosts_pids "$1" "sleep $2") ]]; }
sees() { hosts_on "$1" sh -c 'grep -qsxz -e "$0[5]" /proc/[0-9]*/cmdline' "${2%5}"; }
runs_anywhere() {
  local process
  for process in /proc/[0-9]*; do
    [[ $(tr '\0' ' ' 2>/dev/null <"$process/cmdline") != "sleep $1 " ]] || return 0
  done
  return 1
}

# `harness.sh victim SECONDS` plays a test that is killed while its hosts run something.
if [[ ${1:-} == victim ]]; then
  hosts_up 2
  hosts_on node1 ssh node2 "sleep $2" &
  hosts_wait_until 'node2 sleeps' sleeps_on node2 "$2"
  echo "$HOSTS_DIR"
  kill -KILL $$
fi

hosts_up 2
holds 'a host has a name' test "$(hosts_on node1 ssh node2 hostname)" = node2
hosts_on node1 touch /dev/shm/mine "$HOSTS_OWN/mine"
holds 'a host has shared memory and a directory of its own' \
  test "$(hosts_on node2 sh -c "ls /dev/shm $HOSTS_OWN" | grep -c mine)" = 0
holds 'which can be seen from outside' test -e "$HOSTS_DIR/node1/own/mine"

number=${RANDOM}5
hosts_on node1 ssh node2 "sleep $number" 2>/dev/null &
hosts_wait_until 'node2 sees its processes' sees node2 "$number"
holds 'a host sees its processes' sees node2 "$number"
holds 'and those of no other' fails sees node1 "$number"

# After the largest id of a process the kernel goes on with the smallest that is free.
hosts_on node1 sleep "1$number" &
hosts_wait_until 'the first sleeps' sleeps_on node1 "1$number"
{ cat /proc/sys/kernel/pid_max >/proc/sys/kernel/ns_last_pid; } 2>/dev/null || true  # a container may forbid it
hosts_on node1 sleep "2$number" &
hosts_wait_until 'the second sleeps' sleeps_on node1 "2$number"
started=$(hosts_pids node1 'sleep ' | tail -n 2 | xargs)
holds 'processes are listed in the order of their start, whatever their ids' \
  test "$started" = "$(hosts_pids node1 "sleep 1$number") $(hosts_pids node1 "sleep 2$number")"

hosts_link node2 down
holds 'a host without a cable is not reached' is_cut_off_from node1 node2
hosts_link node2 up
holds 'with a cable it is' reaches node1 node2
hosts_sshd node2 stop
holds 'a host without an sshd is not reached' is_cut_off_from node1 node2
hosts_sshd node2 start
holds 'with an sshd it is' reaches node1 node2

hosts_bad_link node2 100 2
begin=$(date +%s%N)
sum=$(hosts_on node1 ssh node2 'head -c 3000000 /dev/zero' | md5sum)
holds 'a bad link delivers what is sent' test "$sum" = "$(head -c 3000000 /dev/zero | md5sum)"
holds 'late' test $((($(date +%s%N) - begin) / 1000000)) -ge 400

number=${RANDOM}5
directory=$(bash "$0" victim "$number" 2>/dev/null) || true
holds 'a script is killed' test -d "$directory"
hosts_wait_until 'its processes are gone' fails runs_anywhere "$number"
rm -rf "$directory"
holds 'and the hosts of another are as they were' reaches node1 node2
