#!/usr/bin/env bash
# Tests a run on two hosts that are as containers often are: the root file system is read-only, /dev/shm has 64 MB, the user
# is not root. With TMPDIR in a folder that the user may write to on each host, the weights are those of one host, over ssh
# and without it, of a model that is larger than /dev/shm; without TMPDIR one error names the folder that is missing. Ranks
# of one such host need none.
#   tests/hosts/containers.sh DSTRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
training_hosts "$1" 2 setpriv
unset TMPDIR
readonly USER_ID=54321
# 76 MB of parameters.
model=(--set dstrain.model.n_embd=512 --set dstrain.model.n_layer=6 --steps 1)
training_reference "$dstrain" 3 "${model[@]}"

# What the user needs: the program, a shared folder to write to, and one for each host.
cp "$dstrain" dstrain
dstrain=$HOSTS_DIR/dstrain
mkdir home shared
cp c.json text.txt hosts shared
{
  cat /etc/passwd
  echo "trainer:x:$USER_ID:$USER_ID::$HOSTS_DIR/home:/bin/bash"
} >passwd
chmod 755 . node1 node2
chown -R $USER_ID:$USER_ID home shared node1/own node2/own user_key
for host in node1 node2; do
  hosts_sshd $host stop # its log is open
  hosts_on $host sh -c "mount --bind passwd /etc/passwd && mount --bind . . && mount --bind $HOSTS_DIR/$host/own $HOSTS_OWN &&
    mount -o remount,size=64m /dev/shm && mount -o remount,bind,ro /"
  hosts_sshd $host start
done

# as_user NODE COMMAND...: runs a command on a host as the user, in the shared folder.
as_user() {
  (cd shared && hosts_on "$1" setpriv --reuid $USER_ID --regid $USER_ID --clear-groups \
    env HOME="$HOSTS_DIR/home" USER=trainer LOGNAME=trainer "${@:2}")
}
! as_user node1 touch /tmp/file 2>/dev/null || hosts_skip '/tmp is no part of the root file system'
hosts_wait_until 'the user reaches node2' as_user node1 ssh node2 true
train=("$dstrain" --config c.json --set zero_optimization.stage=3 "${model[@]}")

# same NAME: fails unless a run has the weights of one host, and leaves no files of its own on hosts.
same() {
  cmp one3/model.safetensors "shared/$1/model.safetensors" || fail "$1: other weights" "$1.log"
  [[ -z $(find node1/own node2/own -mindepth 1) ]] || fail "$1 leaves files" <(find node1/own node2/own)
  echo "$1: the weights of four ranks on one host"
}

status=0
as_user node1 "${train[@]}" --hostfile hosts --output none >none.log 2>&1 || status=$?
[[ $status != 0 && $(grep -c 'dstrain: error: ' none.log) == 1 ]] || fail "exit status $status" none.log
grep -q '/tmp.*Read-only file system.*TMPDIR' none.log || fail 'it does not say what is missing' none.log
grep 'dstrain: error: ' none.log

train_there=(env TMPDIR="$HOSTS_OWN" "${train[@]}")
as_user node1 "${train_there[@]}" --hostfile hosts --output ssh >ssh.log 2>&1 || fail ssh ssh.log
same ssh
node() { # RANK: runs a node without ssh
  as_user "node$(($1 + 1))" "${train_there[@]}" --num_gpus 2 --output no_ssh --no_ssh --nnodes 2 --node_rank "$1" \
    --master_addr "$HOSTS_NETWORK.1"
}
node 1 >no_ssh.1.log 2>&1 &
node 0 >no_ssh.log 2>&1 || fail no_ssh no_ssh.log
wait $! || fail 'node 1' no_ssh.1.log
same no_ssh
as_user node1 "${train[@]}" --num_gpus 4 --output here >here.log 2>&1 || fail here here.log
same here
