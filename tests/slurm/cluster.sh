#!/usr/bin/env bash
# Runs a Slurm of one node on this machine: munged, slurmctld and slurmd. All its files and sockets are in a folder,
# and it shares no port with another Slurm. Tests source this file.
#   start_cluster FOLDER    returns once the node is idle; exports SLURM_CONF
#   stop_cluster            kills all jobs and ends the daemons

slurm_daemons=()

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

is_idle() { [[ $(sinfo -h -t idle -o %D) == 1 ]]; }

start_daemon() {
  "$@" >>"$slurm_folder/daemons.log" 2>&1 &
  slurm_daemons+=($!)
}

start_cluster() {
  slurm_folder=$1
  local host port user
  host=$(hostname -s)
  user=$(id -un)
  port=$(free_ports)
  export SLURM_CONF=$slurm_folder/slurm.conf
  mkdir -p "$slurm_folder"/{munge,state,spool}
  (umask 077 && head -c 1024 /dev/urandom >"$slurm_folder/munge/key")
  chmod 755 "$slurm_folder" "$slurm_folder/munge"
  # A requeued job waits as long as cred_expire says. config_overrides lets the node have more CPUs than this machine.
  cat >"$SLURM_CONF" <<CONF
ClusterName=dstrain_test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd.pid
SlurmctldLogFile=$slurm_folder/slurmctld.log
SlurmdLogFile=$slurm_folder/slurmd.log
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
NodeName=dsnode NodeHostname=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=dsnode Default=YES MaxTime=INFINITE State=UP
CONF

  # Elsewhere a folder that a killed daemon has left would make a later job of the same number fail.
  echo "PMIxCliTmpDirBase=$slurm_folder" >"$slurm_folder/mpi.conf"

  start_daemon munged --foreground --force --key-file="$slurm_folder/munge/key" \
    --socket="$slurm_folder/munge/socket" --pid-file="$slurm_folder/munge/pid" \
    --log-file="$slurm_folder/munge/log" --seed-file="$slurm_folder/munge/seed"
  wait_for 10 test -S "$slurm_folder/munge/socket" || return 1
  start_daemon slurmctld -D -f "$SLURM_CONF"
  start_daemon slurmd -D -f "$SLURM_CONF" -N dsnode
  wait_for 30 is_idle
}

stop_cluster() {
  local i
  scancel --full --signal=KILL --user="$(id -un)" 2>/dev/null || true
  for ((i = ${#slurm_daemons[@]} - 1; i >= 0; --i)); do
    kill "${slurm_daemons[i]}" 2>/dev/null || true
    wait "${slurm_daemons[i]}" 2>/dev/null || true
  done
  slurm_daemons=()
}
