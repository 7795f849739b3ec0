# Makes several hosts on one machine, for tests that need them. A bash script sources this file.
#
# A host is a set of namespaces in which an sshd runs. It has a network address, which the others reach over a bridge, a
# host name, and mounts of its own (/dev/shm, /etc/hosts, ssh's configuration), and it sees only its own processes. On
# a host, `ssh node2`, `mpirun --host node2` and programs that use them work as on a cluster, without further options.
# All hosts share the files of this machine, as on a cluster with a common file system.
#
#   hosts_need_or_skip [PROGRAM...]  ends the script with status 77 and the reason if this machine cannot make hosts or
#                                 has no PROGRAM
#   hosts_up N                    makes node1 ... nodeN; call it once, not from a subshell
#   hosts_file SLOTS...           prints a hostfile; each number is the number of slots of a host
#   hosts_on NODE COMMAND...      runs a command on a host, in the current directory. SIGINT ends it also where a script
#                                 runs it in the background, for which bash lets it ignore the signal
#   hosts_pids NODE [WORD]        prints the ids, as this script sees them, of the processes on a host that have WORD in
#                                 their command line, without sshd and the processes of the host itself, in the order in
#                                 which they were started
#   hosts_idle NODE...            returns whether the hosts have no such process; that of another host that mpirun uses
#                                 ends a moment after mpirun itself
#   hosts_link NODE up|down       connects or disconnects the network cable of a host
#   hosts_bad_link NODE MS PERCENT  makes the cable of a host bad: from now on each frame is MS milliseconds late in
#                                 each direction, and PERCENT percent of frames are lost (needs the program
#                                 $HOSTS_BAD_LINK, which ctest names)
#   hosts_sshd NODE start|stop    starts the ssh server of a host, or kills it and all its open sessions
#
# $HOSTS_DIR is a scratch directory, removed at the end. $HOSTS_OWN is a directory that each host has
# for itself under the same path; $HOSTS_DIR/NODE/own is that of NODE as seen from here.
#
# Hosts have no name or address outside their namespaces, so any number of scripts can run at the same time. When a
# script ends, for whatever reason, the kernel kills its hosts and their processes. If the script can, its trap on
# EXIT ends the hosts before that and removes $HOSTS_DIR.

readonly HOSTS_NETWORK=10.77.0

hosts_need_or_skip() {
  local program
  ((EUID == 0)) || hosts_skip 'namespaces need root'
  for program in ip ssh ssh-keygen sshd unshare nsenter setpriv "$@"; do
    PATH=$PATH:/usr/sbin:/sbin type -P "$program" >/dev/null ||
      hosts_skip "there is no $program (scripts/install_deps.sh --ci installs what is needed)"
  done
  unshare --net --uts --mount --pid --fork --mount-proc true 2>/dev/null ||
    hosts_skip 'the kernel, or a container around this, allows no namespaces'
}

hosts_skip() {
  echo "skipped: $1"
  exit 77
}

hosts_up() {
  PATH=$PATH:/usr/sbin:/sbin
  HOSTS_DIR=$(mktemp -d "${TMPDIR:-/tmp}/hosts-XXXXXX")
  HOSTS_OWN=$HOSTS_DIR/own
  HOSTS_NUMBER=$1
  HOSTS_PROCESSES=()        # processes that this script has started and must end
  declare -gA HOSTS_INIT=() # for each host's name: its process 1, by the id that this script sees
  trap hosts_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$HOSTS_OWN"
  hosts_write_configuration

  hosts_start_switch
  local i
  for ((i = 1; i <= HOSTS_NUMBER; ++i)); do hosts_start "$i"; done
  for ((i = 1; i <= HOSTS_NUMBER; ++i)); do
    hosts_wait_until "node$i answers to ssh" hosts_on node1 ssh "node$i" true
  done
}

hosts_file() {
  local i=0 slots
  for slots in "$@"; do echo "node$((++i)) slots=$slots"; done
}

hosts_on() {
  local host=$1
  shift
  env --default-signal=INT nsenter -t "${HOSTS_INIT[$host]}" --net --uts --mount --pid -- \
    bash -c 'cd "$1" && shift && exec "$@"' "$host" "$PWD" "$@"
}

hosts_pids() {
  local host=$1 word=${2:-} namespace process words line
  namespace=$(readlink "/proc/${HOSTS_INIT[$host]}/ns/pid")
  # A process may end while this reads about it.
  for process in $(find /proc/[0-9]*/ns/pid -maxdepth 0 -lname "${namespace//[/\\[}" 2>/dev/null); do
    process=${process%/ns/pid}
    mapfile -d '' -t words 2>/dev/null <"$process/cmdline" || continue
    line="${words[*]} "
    [[ $line != ' ' && $line != "$HOSTS_INIT_NAME"* && $line != sshd:* && $line != 'sleep infinity '* ]] || continue
    [[ $line == *"$word"* ]] || continue
    # The id on its own host.
    printf '%s %s\n' "$(sed -n 's/^NSpid:.*\t//p' "$process/status" 2>/dev/null)" "${process#/proc/}"
  done | sort -n | cut -d' ' -f2
}

hosts_idle() {
  local host
  for host in "$@"; do [[ -z $(hosts_pids "$host") ]] || return 1; done
}

hosts_link() {
  nsenter -t "${HOSTS_INIT[$1]}" -n ip link set eth0 "$2"
}

hosts_bad_link() {
  local switch=${HOSTS_INIT[switch]}
  nsenter -t "${HOSTS_INIT[$1]}" -n "$HOSTS_BAD_LINK" eth0
  nsenter -t "$switch" -n ip link set "$1" nomaster
  setpriv --pdeathsig KILL nsenter -t "$switch" -n "$HOSTS_BAD_LINK" "$1" "bad$1" "$2" "$3" &
  HOSTS_PROCESSES+=("$!")
  hosts_wait_until "$1 has a bad link" \
    nsenter -t "$switch" -n ip link set "bad$1" master bridge up
}

hosts_sshd() {
  local process
  if [[ $2 == start ]]; then
    hosts_on "$1" "$HOSTS_SSHD" -f "$HOSTS_DIR/sshd_config" -E "$HOSTS_DIR/$1/sshd.log"
    return
  fi
  for process in $(hosts_on "$1" sh -c 'grep -lsz "^sshd: " /proc/[0-9]*/cmdline'); do
    process=${process#/proc/}
    hosts_on "$1" kill -KILL "${process%/cmdline}" 2>/dev/null || true
  done
}

hosts_down() {
  trap - EXIT INT TERM
  local process
  for process in "${HOSTS_PROCESSES[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
  wait "${HOSTS_PROCESSES[@]}" 2>/dev/null || true
  rm -rf "$HOSTS_DIR"
}

# ---- What follows is used only in this file, except hosts_wait_until.

# The command line of a host's process 1 begins with these words.
readonly HOSTS_INIT_NAME='bash -c # a host of a test'

# The script of a host's process 1: it sets up the host's mounts and name, then adopts orphaned processes until it is
# killed.
readonly HOSTS_INIT_SCRIPT="${HOSTS_INIT_NAME#bash -c }"'
  set -e
  name=$1 directory=$2 own=$3
  echo "$name" >/proc/sys/kernel/hostname
  ip link set lo up
  mount -t tmpfs tmpfs /dev/shm
  mount --bind "$directory/etc_hosts" /etc/hosts
  mount --bind "$directory/ssh_config" /etc/ssh/ssh_config
  mount --bind "$directory/$name/own" "$own"
  # A session that is killed while its shell starts leaves locks of what the user starts there.
  [[ ! -e ~/.bashrc ]] || mount --bind /dev/null ~/.bashrc
  mkdir -p /run/sshd
  touch "$directory/$name/ready"
  while true; do
    sleep infinity &
    wait
  done
'

hosts_write_configuration() {
  HOSTS_SSHD=$(type -P sshd)
  local i
  ssh-keygen -q -t ed25519 -N '' -f "$HOSTS_DIR/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$HOSTS_DIR/user_key"
  echo '127.0.0.1 localhost' >"$HOSTS_DIR/etc_hosts"
  for ((i = 1; i <= HOSTS_NUMBER; ++i)); do
    echo "$HOSTS_NETWORK.$i node$i" >>"$HOSTS_DIR/etc_hosts"
    mkdir -p "$HOSTS_DIR/node$i/own"
  done
  cat >"$HOSTS_DIR/ssh_config" <<END
IdentityFile $HOSTS_DIR/user_key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
END
  cat >"$HOSTS_DIR/sshd_config" <<END
Port ${HOSTS_SSH_PORT:-22}
HostKey $HOSTS_DIR/host_key
AuthorizedKeysFile $HOSTS_DIR/user_key.pub
StrictModes no
PermitRootLogin prohibit-password
PidFile none
MaxStartups 1000
MaxSessions 1000
UseDNS no
END
  [[ ${HOSTS_SSH_PORT:-22} == 22 ]] || echo "Port $HOSTS_SSH_PORT" >>"$HOSTS_DIR/ssh_config"
}

# Starts the bridge that joins the hosts, in a network namespace of its own. Its process makes a file when it is in the
# namespace, as that of a host does: commands that ran before that would change the network of this machine.
hosts_start_switch() {
  setpriv --pdeathsig KILL unshare --net -- sh -c \
    'ip link add bridge type bridge && ip link set bridge up && touch "$0" && exec sleep infinity' \
    "$HOSTS_DIR/switch_is_ready" &
  HOSTS_PROCESSES+=("$!")
  HOSTS_INIT[switch]=$!
  hosts_wait_until 'the switch is set up' test -e "$HOSTS_DIR/switch_is_ready"
}

# hosts_start NUMBER: starts a host. Its process 1 is killed when this script ends, and the kernel then kills all other
# processes of the host.
hosts_start() {
  local name=node$1
  setpriv --pdeathsig KILL \
    unshare --net --uts --mount --pid --fork --kill-child --mount-proc -- \
    bash -c "$HOSTS_INIT_SCRIPT" host "$name" "$HOSTS_DIR" "$HOSTS_OWN" &
  HOSTS_PROCESSES+=("$!")
  hosts_wait_until "$name is set up" test -e "$HOSTS_DIR/$name/ready"
  HOSTS_INIT[$name]=$(tr -d ' ' <"/proc/$!/task/$!/children")
  local switch=${HOSTS_INIT[switch]} host=${HOSTS_INIT[$name]}
  ip link add "$name" netns "$switch" type veth peer name eth0 netns "$host"
  nsenter -t "$switch" -n ip link set "$name" master bridge up
  nsenter -t "$host" -n ip addr add "$HOSTS_NETWORK.$1/24" dev eth0
  nsenter -t "$host" -n ip link set eth0 up
  hosts_sshd "$name" start
}

# hosts_wait_until WHAT COMMAND...: waits until the command succeeds; ends the script after two minutes.
hosts_wait_until() {
  local what=$1 end=$((SECONDS + 120))
  shift
  until "$@" 2>/dev/null; do
    if ((SECONDS >= end)); then
      echo "hosts: waited 120 s in vain: $what" >&2
      cat "$HOSTS_DIR"/node*/sshd.log >&2 2>/dev/null || true
      exit 1
    fi
    sleep 0.05
  done
}
