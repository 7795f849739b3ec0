#!/usr/bin/env bash
# Causes random faults in runs of four ranks on three hosts: data, tensor, sequence and pipeline parallel ones, of
# adapters, and with the optimizer on a drive. A run is started in a random way; at a random moment a process of it gets
# a signal, or all get one, agents are killed, a cable is pulled, the command is killed as it starts, or the room for
# temporary files is taken. Then the run is resumed where it left a checkpoint. Prints a line for each fault, and tables.
#   tests/hosts/random_faults.sh DSTRAIN [COUNT] [SEED]
# The same seed gives the same faults, but for the moment at which they meet the run. KINDS, FRONTS and LAYOUTS in the
# environment name those to choose from. Fails unless each outcome is explained: the run goes on or ends within its
# limit, with the status that the fault asks for, the error names the host or rank that the fault hit, no process, folder
# for temporary files or swap file is left on any host, and the resumed run's steps are the same bits as those before
# the fault and as those of a run on one host. ROWS in the environment names a file to which a row is appended for each
# fault; the tables then cover all rows of the file, so that several calls count together.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/training.sh"
source "$(dirname "${BASH_SOURCE[0]}")/tools/random_runs.sh"
rows=$(realpath "${ROWS:-/dev/null}")
count=${2:-20} seed=${3:-${DSTRAIN_SAMPLE:-$RANDOM}}
training_hosts "$1" 3 python3
[[ $rows != /dev/null ]] || rows=$HOSTS_DIR/rows
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
nodes='node1 node2 node3'
RANDOM=$seed
read -ra kinds <<<"${KINDS:-signal signal agents cable everyone early room}"
read -ra fronts <<<"${FRONTS:-hostfile outside no_ssh mpirun}"
read -ra layouts <<<"${LAYOUTS:-data tensor sequence pipeline adapter nvme}"
for front in "${!slots_of[@]}"; do hosts_file ${slots_of[$front]} >"hosts_$front"; done
export TMPDIR=$HOSTS_OWN/tmp
for host in $nodes; do
  mkdir "$host/own/nvme" "$host/own/tmp"
  hosts_on "$host" mount -t tmpfs -o size=64m tmpfs "$TMPDIR"
done
options=(--save_interval 20 --set dstrain.keep_last=2 --set steps_per_print=1 --set dstrain.silence_s=3
  --set dstrain.save_last=true)
random_layouts
declare -A reached=()
hosts_on node1 "$dstrain" --config c.json --steps 0 --output init >init.log 2>&1 || fail 'initial weights' init.log

one_of() { # VARIABLE WORD...: sets the variable to one of the words
  local -n chosen=$1
  shift
  local -a list=("$@")
  chosen=${list[RANDOM % ${#list[@]}]}
}

# take_room HOST BYTES: lets so many bytes be left for temporary files.
take_room() {
  hosts_on "$1" bash -c 'free=$(($(stat -f -c "%a * %S" "$0"))); ((free <= $1)) || head -c $((free - $1)) /dev/zero >"$0/taken"' "$TMPDIR" "$2"
}

# strike: lets the fault happen.
strike() {
  local each
  case $kind in
    cable) hosts_link "$host" down ;;
    room) take_room "$host" "$room" ;;
    everyone)
      local all
      mapfile -t all < <(for each in $nodes; do victims "$each"; done)
      kill -"$signal" "${all[@]}" 2>/dev/null || true
      ;;
    *)
      await 60 found || wrong="there is no $victim on $host"
      sleep "$pause"
      mapfile -t all < <(victims "$host")
      process=${all[0]:-}
      [[ -z $process ]] || kill -"$signal" "$process" 2>/dev/null || true
      [[ $victim != both || -z $process ]] || kill -KILL "${all[@]}" 2>/dev/null || true
      ;;
  esac
}

# explain STATUS: adds to $wrong what the fault does not explain. $error is the run's error.
explain() {
  local named='rank [0-3]|node[1-3]|mpirun' expected='2|143' room_named="$host +temporary files +|on $host, |$host.*$TMPDIR"
  [[ $victim != launcher || $signal != KILL ]] || expected='2|137'
  case $front/$kind/$victim in
    mpirun/everyone/* | mpirun/room/* | mpirun/*/launcher) expected='[0-9]+' named= ;;
    */everyone/*) expected=$((128 + $(kill -l "$signal"))) ;;
    */early/*) expected=137 ;;
    */room/*) named=$room_named expected='1|2|143' ;;
    mpirun/*) expected='[0-9]+' ;;
    */agent | */both | */host | */guard) named="$host|this machine lost its network" ;;
    */rank) named="rank [0-3].*$host|$host.*rank [0-3]" ;;
  esac
  # A host that is lost while it is checked is not ready for a start.
  [[ $moment != start || $error != *'not ready'* || $kind == room ]] || expected=1 named=$host
  [[ $1 =~ ^($expected)$ && $1 != 0 ]] || wrong+="; status $1 instead of $expected"
  (($1 > 2)) || grep -qE -- "$named" <<<"$error" || wrong+="; the error does not name '$named'"
}

# end_waiting_nodes: ends by SIGTERM the nodes of --no_ssh that have not met node 0.
end_waiting_nodes() {
  local n
  for n in 1 2; do
    [[ ! -e log$n ]] || grep -q 'has met node 0' "log$n" || kill -TERM $(hosts_pids "node$((n + 1))") 2>/dev/null || true
  done
}

# fault: starts a run and causes a fault. Sets $result to what came of it, and $wrong to what is wrong with that.
fault() {
  local status=0 goes_on= victim_was all
  words=(--config c.json ${layout_of[$layout]} "${options[@]}" --output out --steps 100000000)
  wrong='' result='' process='' same=0
  rm -rf out log log1 log2
  touch log
  [[ $kind/$moment != room/start ]] || strike
  start
  if [[ $kind == early ]]; then
    sleep "$pause"
    pause=0
  else
    await 60 met || wrong='the nodes did not meet'
    [[ $moment == start ]] || await 60 has_begun || wrong='the run did not begin'
  fi
  [[ $kind == signal || $kind == agents || $kind == early ]] || sleep "$pause"
  [[ $kind/$moment == room/start ]] || strike
  before=$(steps) struck=$SECONDS
  # A launching process that is suspended before it has started the ranks starts them when it is continued.
  if [[ $signal/$victim == STOP/launcher ]] && ((before == 0)); then
    sleep 6
    continue_all
    struck=$SECONDS
  fi
  # What the fault does not touch goes on, and so do ranks whose launching process is suspended.
  if await 60 has_ended_or_goes_on && ! has_ended "$job"; then
    goes_on=yes result='goes on'
    continue_all
    victim_was=$victim victim=launcher
    kill -TERM $(victims "$(host_of_command)") 2>/dev/null || true
    victim=$victim_was
  fi
  await 60 has_ended "$job" || wrong+="; the run does not end"
  continue_all
  # A node that had not met node 0 cannot know that this has ended: it waits for it.
  ((${#others[@]} == 0)) || { [[ $kind == early ]] && end_waiting_nodes; }
  # What is left of it ends before the command is waited for, which may never end by itself.
  await 30 nothing_left || wrong+="; left: $(left)"
  [[ $kind != cable ]] || hosts_link "$host" up
  local node
  for node in $nodes; do
    kill -KILL $(hosts_pids "$node") 2>/dev/null || true
    hosts_on "$node" rm -f "$TMPDIR/taken"
  done
  wait "$job" 2>/dev/null || status=$?
  ((${#others[@]} == 0)) || wait "${others[@]}" 2>/dev/null || true
  result+="${result:+, }status $status"
  error=$(awk '/^dstrain: error: / { on = 1; print; next } on && /^ / { print; next } { on = 0 }' log | head -n 4 | tr '\n' ' ')
  ((status > 2)) || result+=": ${error#dstrain: error: }"
  if [[ -n $goes_on ]]; then
    # Without room for temporary files a rank may end while it saves.
    [[ $status == 143 || $front == mpirun ]] || { [[ $kind == room && $status == 2 ]] && grep -qF "$TMPDIR" <<<"$error"; } ||
      wrong+="; status $status after SIGTERM"
  else
    explain "$status"
  fi
  resumes
  ((same == 0)) || result+="; resumed, $same steps of the same bits"
  for node in $nodes; do
    kill -KILL $(hosts_pids "$node") 2>/dev/null || true
    hosts_on "$node" find "$TMPDIR" -mindepth 1 -delete
  done
  echo "$kind $front $layout ${wrong:+wrong} ${goes_on:-ended} $status $same" | tr -s ' ' >>"$rows"
}
# A fault that ends the run does so within twelve seconds.
has_ended_or_goes_on() { has_ended "$job" || { ((SECONDS - struck > 12)) && went_on; }; }

# table COLUMN TITLE: prints how the faults came out by kind, front or layout.
table() {
  printf '\n| %s | faults | explained | went on | resumed | steps of the same bits | statuses |\n|---|---|---|---|---|---|---|\n' "$2"
  awk -v column="$1" '
    { k = $column; n[k]++; bad = $4 == "wrong"; wrong[k] += bad; on[k] += $(4 + bad) == "yes"
      status = $(5 + bad); if (!seen[k, status]++) list[k] = list[k] (list[k] == "" ? "" : ", ") status
      same = $(6 + bad); resumed[k] += same > 0; bits[k] += same }
    END { for (k in n) printf "| %s | %d | %d | %d | %d | %d | %s |\n", k, n[k], n[k] - wrong[k], on[k], resumed[k], bits[k], list[k] }
  ' "$rows" | sort
}

failed=0
for ((i = 1; i <= count; ++i)); do
  one_of kind "${kinds[@]}"
  one_of front "${fronts[@]}"
  one_of layout "${layouts[@]}"
  one_of moment start step
  one_of signal KILL STOP TERM
  one_of room 0 1000000 5000000 20000000
  delay=$((RANDOM % 20))
  pause=$((delay / 10)).$((delay % 10))
  victim=host
  case $kind/$front in
    signal/mpirun) one_of victim launcher watcher rank ;;
    signal/no_ssh) one_of victim launcher node agent guard rank ;;
    signal/*) one_of victim launcher agent guard rank ;;
    agents/mpirun) victim=watcher signal=KILL ;;
    agents/*) one_of victim agent both && signal=KILL ;;
    cable/*) signal=cable ;;
    room/*) signal=$room ;;
    everyone/*) one_of signal INT TERM && victim=everyone ;;
    early/*) victim=launcher signal=KILL moment=start ;;
  esac
  case $front/$victim in
    */launcher) host=$(host_of_command) ;;
    */node) one_of host node2 node3 ;;
    outside/rank) one_of host node1 node2 ;;
    *) one_of host node1 node2 node3 ;;
  esac
  # Before the ranks run, mpirun alone waits for a host without a network, and ends what has not begun.
  [[ $front != mpirun || $victim == rank || $kind == early ]] || moment=step
  fault
  printf '%3d %-8s %-8s %-9s %-8s %-5s %-8s %-5s +%d.%d s  %s%s\n' "$i" "$kind" "$front" "$layout" "$victim" "$host" "$signal" "$moment" \
    $((delay / 10)) $((delay % 10)) "$result" "${wrong:+  WRONG: $wrong}"
  [[ -z $wrong ]] || { failed=$((failed + 1)) && tail -n 30 log log1 log2 2>/dev/null | grep -v '^step=' || true; }
done
table 1 fault
table 2 'started by'
table 3 run
echo
echo "$failed of $count faults came out wrong (seed $seed)"
((failed == 0))
