#!/usr/bin/env bash
# Tests faults of runs that the user's own mpirun starts on two hosts with two ranks each: the error names a stopped
# rank on either host, and a host whose cable is pulled. No rank is left. Watchers meet at --master_addr.
#   tests/hosts/mpirun_faults.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2
training_by_mpirun

trains() { grep -q 'step=3 ' "$1.log"; }
# dstrain_on HOST [WORD]: prints the ranks and watchers on a host that have WORD in their command line.
dstrain_on() {
  local process
  for process in $(hosts_pids "$@"); do
    [[ $(cat "/proc/$process/comm" 2>/dev/null) != dstrain ]] || echo "$process"
  done
}
no_dstrain_on() { [[ -z $(dstrain_on "$1") ]]; }

# start NAME [OPTION...]: starts a run in the background, sets $mpirun to its process, and waits until it trains.
start() {
  hosts_on node1 "${by_mpirun[@]}" --config c.json --output "$1" --steps 100000000 "${@:2}" >"$1.log" 2>&1 &
  mpirun=$!
  hosts_wait_until "$1 trains" trains "$1"
}

# named NAME PATTERN: fails unless the run has printed one error, and the error matches.
named() {
  [[ $(grep -c 'dstrain: error: ' "$1.log") == 1 ]] || fail "$1: not one error" "$1.log"
  grep -qE "dstrain: error: $2" "$1.log" || fail "$1: not '$2'" "$1.log"
  echo "$1: $(grep 'dstrain: error: ' "$1.log")"
}

for host in node1 node2; do
  start "stop_$host"
  mapfile -t victims < <(dstrain_on "$host" "--output stop_$host")
  ((${#victims[@]} == 2)) || fail "stop_$host: not two ranks on $host" "stop_$host.log"
  kill -STOP "${victims[0]}"
  status=0
  wait "$mpirun" || status=$?
  ((status == 2)) || fail "stop_$host: exit status $status" "stop_$host.log"
  named "stop_$host" "rank [0-3] \(pid [0-9]+ on $host\) is stopped \(as by SIGSTOP\) at step "
  for each in node1 node2; do hosts_wait_until "nothing is left on $each" no_dstrain_on "$each"; done
done

# An address of another interface, which Open MPI does not use.
hosts_on node1 ip link add other up type veth peer name other_end
hosts_on node1 ip link set other_end up
hosts_on node1 ip addr add 10.99.0.1/24 dev other
hosts_on node2 ip route add 10.99.0.1/32 via "$HOSTS_NETWORK.1"
export OMPI_MCA_oob_tcp_if_include=$HOSTS_NETWORK.0/24 OMPI_MCA_btl_tcp_if_include=$HOSTS_NETWORK.0/24
start watcher --master_addr 10.99.0.1
listening=$(listens "$(programs_on node1 "$dstrain" host_watch)")
[[ $listening == 10.99.0.1:* ]] || fail "the watcher listens at $listening, not at --master_addr" watcher.log
watcher=$(programs_on node2 "$dstrain" host_watch)
kill -STOP "$watcher"
kill -KILL $(dstrain_on node2 '--output watcher')
wait "$mpirun" || true
for each in node1 node2; do hosts_wait_until "nothing is left on $each" no_dstrain_on "$each"; done
hosts_on node1 ip link del other
unset OMPI_MCA_oob_tcp_if_include OMPI_MCA_btl_tcp_if_include
echo 'watcher: a stopped one ends with the ranks of its host'

start cable
hosts_link node2 down
hosts_wait_until 'the host is missed' grep -q 'dstrain: error: node2 was lost: no word from it for 5 s' cable.log
for each in node1 node2; do hosts_wait_until "nothing is left on $each" no_dstrain_on "$each"; done
named cable 'node2 was lost: no word from it for 5 s.*; .* mpirun may wait for that host for ever: `kill -KILL [0-9]+` on node1 ends it'
advice=$(sed -n 's/.*: `\(kill -KILL [0-9]*\)` on node1 ends it.*/\1/p' cable.log)
# It waits for the daemon on the host without a cable. The id is that of the host.
hosts_on node1 $advice || fail 'the command that ends mpirun' cable.log
wait "$mpirun" 2>/dev/null || true
[[ -z $(programs_on node1 '*/orterun') ]] || fail 'mpirun lives' cable.log
echo "cable: '$advice' ends mpirun"
