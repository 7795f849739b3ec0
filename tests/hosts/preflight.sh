#!/usr/bin/env bash
# Tests the checks of hosts that a run makes before it starts, and `dstrain doctor` too: all hosts see the output
# directory, have the same version of Open MPI, and have the same input, which is checked with --no_ssh_check too. The
# checks leave no files.
#   tests/hosts/preflight.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2

# asks NAME STATUS EXPECTED WORD...: runs dstrain with these words on node1, and fails unless it ends with STATUS and
# prints a line that matches EXPECTED.
asks() {
  local status=0
  hosts_on node1 "$dstrain" "${@:4}" --hostfile hosts >"$1.log" 2>&1 || status=$?
  ((status == $2)) || fail "$1: status $status" "$1.log"
  grep -Eq -- "$3" "$1.log" || fail "$1: '$3' is not said" "$1.log"
  echo "$1: $(grep -E -- "$3" "$1.log" | tail -n 1)"
}

asks well 0 '^node2: dstrain .* 2 ranks on ' doctor --config c.json --output shared/new --save_interval 2 \
  --init_weights "$(
    hosts_on node1 "$dstrain" --config c.json --steps 0 --output initial >initial.log 2>&1
    echo initial/model.safetensors
  )"
[[ ! -e shared ]] || fail 'doctor has left a directory' well.log

not_shared="node2 +output +what node1 writes into $HOSTS_OWN/out is not there: --output must be shared"
asks output 1 "$not_shared" --config c.json --output "$HOSTS_OWN/out"
asks output_doctor 1 "$not_shared" doctor --config c.json --output "$HOSTS_OWN/out"
[[ -z $(find node1/own node2/own -name '*.probe') && ! -e node2/own/out ]] || fail 'a probe is left' output.log

mkdir node1/own/tmp node2/own/tmp
hosts_on node2 mount -t tmpfs -o size=8m tmpfs "$HOSTS_OWN/tmp"
hosts_on node2 sh -c 'head -c 7000000 /dev/zero >$0/taken' "$HOSTS_OWN/tmp"
little="node2 +temporary files +$HOSTS_OWN/tmp there has 1.* left, and temporary files of 2 ranks need .*TMPDIR"
TMPDIR=$HOSTS_OWN/tmp asks little_room 1 "$little" --config c.json --output no
TMPDIR=$HOSTS_OWN/tmp asks little_room_doctor 1 "$little" doctor --config c.json --output no
hosts_on node2 umount "$HOSTS_OWN/tmp"
# There is room, but for one file only, so that the agent there fails after the checks.
hosts_on node2 mount -t tmpfs -o nr_inodes=2 tmpfs "$HOSTS_OWN/tmp"
TMPDIR=$HOSTS_OWN/tmp asks one_file 2 "error: node2 cannot watch its ranks: .*$HOSTS_OWN/tmp/dstrain.*: No space left on device \(TMPDIR names" \
  --config c.json --output no
[[ -z $(find node1/own/tmp -mindepth 1; hosts_on node2 find "$HOSTS_OWN/tmp" -mindepth 1) ]] || fail 'a folder is left' one_file.log
hosts_on node2 umount "$HOSTS_OWN/tmp"

for node in node1 node2; do cp c.json "$node/own/c.json"; done
sed 's/"lr": 1e-3/"lr": 2e-3/' c.json >node2/own/c.json
asks no_ssh_check 1 'node2 +input +.*c.json is not the same there' --config "$HOSTS_OWN/c.json" --output no --no_ssh_check

program() { hosts_on "$1" realpath "$(type -P "$2")"; } # NODE NAME: prints the path of a program
hosts_on node2 mount --bind /dev/null "$(program node2 orted)"
missing="node2 +openmpi +mpirun's daemon orted is not on PATH there: install Open MPI"
asks orted 1 "$missing" --config c.json --output no
asks orted_doctor 1 "$missing" doctor
hosts_on node2 umount "$(program node2 orted)"

printf '#!/bin/sh\necho "mpirun (Open MPI) 1.10.7"\n' >mpirun
chmod +x mpirun
hosts_on node2 mount --bind "$PWD/mpirun" "$(program node2 mpirun)"
asks version 1 'node2 +openmpi +Open MPI 1.10.7 there, [0-9.]+ here: install the same' --config c.json --output no
hosts_on node2 umount "$(program node2 mpirun)"

hosts_on node1 mount --bind /dev/null "$(program node1 mpirun)"
asks mpirun 1 'node1 +openmpi +mpirun is not on PATH' --config c.json --output no
hosts_on node1 umount "$(program node1 mpirun)"

asks ready 0 'step=5 ' --config c.json --output no --no_ssh_check
