#!/usr/bin/env bash
# Runs a Slurm: munged, slurmctld and a slurmd for each node. All its files and sockets are in a folder, and it shares no
# port with another Slurm. Tests source this file.
#   start_cluster FOLDER             a Slurm of one node, this machine
#   start_host_cluster FOLDER N      one of the hosts node1 ... nodeN of tests/hosts/netns.sh, controlled by node1
# Both return once all nodes are idle, and export SLURM_CONF.
#   stop_cluster                     kills all jobs and ends the daemons; those of hosts end with their hosts (hosts_down)

slurm_daemons=()
slurm_client=() # the command with which a program runs where srun and the like reach the controller

# free_ports: prints the first of three successive ports at which nothing listens.
free_ports() {
  local base
  for base in $(shuf -i 20000-32000 -n 50); do
    if ! ss -Htln | awk '{print $4}' | grep -qE ":($base|$((base + 1))|$((base + 2)))\$"; then
      echo "$base"
      return
    fi
  done
  return 1
}

# wait_for SECONDS COMMAND...: waits until the command succeeds; fails after SECONDS.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

are_idle() { [[ $("${slurm_client[@]}" sinfo -h -t idle -o %D) == "$1" ]]; }

# start_daemon COMMAND...: starts a daemon in the background.
start_daemon() {
  "$@" >>"$slurm_folder/daemons.log" 2>&1 &
  slurm_daemons+=($!)
}

start_cluster() {
  slurm_own=$1/own
  mkdir -p "$slurm_own"
  write_configuration "$1" "$(hostname -s)" 127.0.0.1 \
    "NodeName=dsnode NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 CPUs=4"
  start_munged || return 1
  start_daemon slurmctld -D -f "$SLURM_CONF"
  start_daemon slurmd -D -f "$SLURM_CONF" -N dsnode
  wait_for 30 are_idle 1
}

start_host_cluster() {
  local i nodes=''
  for ((i = 1; i <= $2; ++i)); do nodes+="NodeName=node$i NodeAddr=$HOSTS_NETWORK.$i CPUs=4"$'\n'; done
  slurm_own=$HOSTS_OWN
  slurm_client=(hosts_on node1)
  write_configuration "$1" node1 "$HOSTS_NETWORK.1" "$nodes"
  for ((i = 1; i <= $2; ++i)); do start_munged hosts_on "node$i" || return 1; done
  start_daemon hosts_on node1 slurmctld -D -f "$SLURM_CONF"
  for ((i = 1; i <= $2; ++i)); do start_daemon hosts_on "node$i" slurmd -D -f "$SLURM_CONF" -N "node$i"; done
  wait_for 30 are_idle "$2"
}

# start_munged [WHERE...]: starts munged, with the command WHERE on another host.
start_munged() {
  start_daemon "$@" munged --foreground --force --key-file="$slurm_folder/munge.key" \
    --socket="$slurm_own/munge.socket" --pid-file="$slurm_own/munge.pid" \
    --log-file="$slurm_own/munge.log" --seed-file="$slurm_own/munge.seed"
  wait_for 10 "$@" test -S "$slurm_own/munge.socket"
}

# write_configuration FOLDER HOST ADDRESS NODES: writes the files of Slurm and of munge. HOST is the controller's, NODES are
# the lines of the nodes. Each node has the folder $slurm_own for itself.
write_configuration() {
  slurm_folder=$1
  local port user
  user=$(id -un)
  port=$(free_ports)
  export SLURM_CONF=$slurm_folder/slurm.conf
  mkdir -p "$slurm_folder/state"
  (umask 077 && head -c 1024 /dev/urandom >"$slurm_folder/munge.key")
  chmod 755 "$slurm_folder" "$slurm_own"
  # A requeued job waits as long as cred_expire says. config_overrides lets a node have more CPUs than this machine.
  cat >"$SLURM_CONF" <<CONF
ClusterName=dstrain_test
SlurmctldHost=$2($3)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$slurm_own/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool_%n
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/%n.pid
SlurmctldLogFile=$slurm_folder/slurmctld.log
SlurmdLogFile=$slurm_folder/slurmd_%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmix
ReturnToService=2
KillWait=10
$4
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF

  # Elsewhere a folder that a killed daemon has left would make a later job of the same number fail.
  echo "PMIxCliTmpDirBase=$slurm_own" >"$slurm_folder/mpi.conf"
}

stop_cluster() {
  local i
  "${slurm_client[@]}" scancel --full --signal=KILL --user="$(id -un)" 2>/dev/null || true
  for ((i = ${#slurm_daemons[@]} - 1; i >= 0; --i)); do
    kill "${slurm_daemons[i]}" 2>/dev/null || true
    wait "${slurm_daemons[i]}" 2>/dev/null || true
  done
  slurm_daemons=()
}
