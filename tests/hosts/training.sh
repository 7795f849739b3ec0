# Functions for tests that train a small model on several hosts. The tests source this file. All files are in the
# current directory.
source "$(dirname "${BASH_SOURCE[0]}")/netns.sh"

# training_hosts DSTRAIN N [PROGRAM...]: makes N hosts, enters their directory, and writes the files of the run and a
# hostfile of two hosts with two ranks each. Sets $dstrain to the program's path. Skips the test if this machine cannot
# make hosts, or mpirun or a PROGRAM is missing.
training_hosts() {
  hosts_need_or_skip mpirun "${@:3}"
  dstrain=$(realpath "$1")
  hosts_up "$2"
  cd "$HOSTS_DIR"
  training_tmp
  training_files
  hosts_file 2 2 >hosts
  export OMP_NUM_THREADS=1
}

# training_by_mpirun: sets $by_mpirun to the user's own mpirun command with four ranks of $dstrain on the hosts.
training_by_mpirun() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  by_mpirun=(mpirun --hostfile hosts -np 4 --bind-to none -x OMP_NUM_THREADS "$dstrain")
}

# training_tmp: gives runs a directory of their own for temporary files, tmp, so that a test can see what they leave, and that
# runs of other tests at the same time, whose hosts have the same names, clear none of them.
training_tmp() {
  mkdir "$HOSTS_DIR/tmp"
  export TMPDIR=$HOSTS_DIR/tmp
}

# training_files: writes c.json and text.txt, with which a GPT-lite of two layers trains for five steps with accumulated
# micro-batches.
training_files() {
  cat >c.json <<'END'
{
  "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "dstrain": {
    "model": {"n_layer": 2, "n_embd": 64, "n_head": 4, "block_size": 32},
    "data": {"path": "text.txt"}, "steps": 5, "save_last": false
  }
}
END
  local i
  for ((i = 0; i < 200; ++i)); do echo "$i the quick brown fox jumps over the lazy dog $((i * i))"; done >text.txt
}

# training_reference DSTRAIN STAGE [OPTION...]: trains with four ranks on one host, into the folder one$STAGE.
training_reference() {
  hosts_on node1 "$1" --config c.json --num_gpus 4 --output "one$2" \
    --set "zero_optimization.stage=$2" "${@:3}" >"one$2.log" 2>&1 || fail "stage $2 on one host" "one$2.log"
}

# same_weights STAGE RUN: fails unless the weights of a run are bitwise those of the reference.
same_weights() {
  cmp "one$1/model.safetensors" "$2/model.safetensors" || fail "stage $1: other weights" "$2.log"
  echo "stage $1: $2 has the weights of four ranks on one host"
}

# programs_on NODE EXECUTABLE [WORD]: prints the processes on a host whose executable matches the pattern EXECUTABLE,
# and that have WORD in their command line.
programs_on() {
  local process
  for process in $(hosts_pids "$1" "${3:-}"); do
    # shellcheck disable=SC2053
    [[ $(readlink "/proc/$process/exe") == $2 ]] && echo "$process"
  done
  return 0
}

# ranks_on NODE: prints the processes that are ranks of a hostfile's run, in the order of their ranks.
ranks_on() {
  local process rank
  for process in $(hosts_pids "$1" "$dstrain --hostfile"); do
    rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
    [[ -z $rank ]] || echo "$rank $process"
  done | sort -n | cut -d' ' -f2
}

# parent_of PROCESS: prints the process that is its parent, or nothing if it has ended.
parent_of() { ps -o ppid= -p "$1" | tr -d ' '; }

# launcher_on NODE: prints the process that launched a hostfile's run. That is the first one: a child that it has just
# forked is like it until it runs another program.
launcher_on() {
  local process
  for process in $(programs_on "$1" "$dstrain" "$dstrain --hostfile"); do
    grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$process/environ" || echo "$process"
  done | sed -n 1p
}

# agent_on NODE: prints the process of the agent on a host, which is the first child of its guard, the process that ssh or
# the launching process started.
agent_on() {
  local process parent
  for process in $(programs_on "$1" "$dstrain" host_agent); do
    parent=$(parent_of "$process")
    [[ $(readlink "/proc/$parent/exe") != "$dstrain" ]] || ! grep -qsz '^host_agent$' "/proc/$parent/cmdline" || echo "$process"
  done | sed -n 1p
}

# daemon_on NODE: prints mpirun's daemon on a host. The process that ssh starts forks the daemon and ends, so that the
# daemon is then a child of the host's process 1; that process and a rank that the daemon has just forked are not.
daemon_on() {
  local process
  for process in $(programs_on "$1" '*/orted'); do
    [[ $(parent_of "$process") != "${HOSTS_INIT[$1]}" ]] || echo "$process"
  done
}

# listens PROCESS: prints the address and the TCP port at which a process listens, as ADDRESS:PORT.
listens() {
  local inode
  for inode in $(find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n'); do
    awk -v inode="$inode" '$4 == "0A" && $10 == inode { print $2 }' "/proc/$1/net/tcp"
  done | while IFS=: read -r address port; do
    printf '%d.%d.%d.%d:%d\n' "0x${address:6:2}" "0x${address:4:2}" "0x${address:2:2}" "0x${address:0:2}" "0x$port"
  done
}

fail() {
  echo "FAILED: $1" >&2
  cat "$2" >&2
  exit 1
}
