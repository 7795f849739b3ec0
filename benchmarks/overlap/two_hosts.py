"""Two hosts with a slow link between them, on one machine: network namespaces, each with its own host name and
address. A veth pair joins them, limited in each direction. mpirun starts one rank on each, and the ranks
communicate by TCP, as on a cluster. The namespaces are removed at the end. Needs root."""
import json
import os
import shlex
import subprocess
import sys

NETWORK = "10.203.77"  # used inside the two namespaces only


def sh(*words):
    subprocess.run(words, check=True)


class Hosts:
    """Two hosts that exist as long as this object: one process per host holds its namespaces."""

    def __init__(self, mbit, folder):
        self.holders = []
        self.agent = folder / "agent"
        names = [f"node{i}" for i in (1, 2)]
        try:
            for name in names:
                self.holders.append(self.holder(name))
            self.connect(mbit)
        except BaseException:
            self.close()
            raise
        # mpirun calls this script instead of ssh to start its daemon on a host.
        cases = "".join(
            f"  {name}) exec nsenter -t {holder.pid} -n -u sh -c \"$*\" ;;\n"
            for name, holder in zip(names, self.holders)
        )
        self.agent.write_text(f'#!/bin/sh\nhost=$1; shift\ncase "$host" in\n{cases}esac\nexit 1\n')
        self.agent.chmod(0o700)

    @staticmethod
    def holder(name):
        process = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name}; echo up; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if process.stdout.readline() != "up\n":
            raise SystemExit("no network namespace can be made here: are you root?")
        return process

    def enter(self, i, *words):
        return ["nsenter", "-t", str(self.holders[i].pid), "-n", "-u", *words]

    def connect(self, mbit):
        ends = [f"dst{self.holders[0].pid}{end}" for end in "ab"]
        sh("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for i, end in enumerate(ends):
            sh("ip", "link", "set", end, "netns", str(self.holders[i].pid))
        for i, end in enumerate(ends):
            sh(*self.enter(i, "ip", "link", "set", "lo", "up"))
            sh(*self.enter(i, "ip", "link", "set", end, "name", "eth0"))
            sh(*self.enter(i, "ip", "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0"))
            sh(*self.enter(i, "ip", "link", "set", "eth0", "up"))
            sh(*self.enter(
                i, "tc", "qdisc", "add", "dev", "eth0", "root",
                "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "100ms",
            ))  # fmt: skip

    def sent(self, i):
        """Returns the bytes that a host has sent over the link, headers of packets included."""
        words = self.enter(i, "cat", "/proc/net/dev")
        lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
        counters = next(line for line in lines if line.strip().startswith("eth0:")).partition(":")[2]
        return int(counters.split()[8])

    def mpirun(self, threads, ranks):
        """Returns the command that starts so many ranks of so many threads on each host."""
        network = f"{NETWORK}.0/24"
        return self.enter(
            0, "mpirun", "--host", f"node1:{ranks},node2:{ranks}", "-np", str(2 * ranks), "--bind-to", "none",
            "--mca", "plm_rsh_agent", str(self.agent), "--mca", "btl", "self,tcp",
            "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network,
            "-x", f"OMP_NUM_THREADS={threads}",
        )  # fmt: skip

    def close(self):
        for holder in self.holders:  # the namespaces end with their processes
            holder.stdin.close()
            holder.wait()


def text_of(value):
    return json.dumps(value) if isinstance(value, bool) else str(value)


def train(hosts, options, settings, folder, ranks=1):
    """Runs options.program once, with ranks of options.threads threads on each host and these --set arguments, in a
    folder that has c.json and text.txt. Returns the lines of metrics.jsonl."""
    out = folder / "out"
    command = hosts.mpirun(options.threads, ranks) + [options.program, "--config", str(folder / "c.json")]
    command += ["--device", "cpu", "--data", str(folder / "text.txt"), "--overwrite", "--output", str(out)]
    command += ["--set", "dstrain.save_last=false"]
    for key, value in settings.items():
        command += ["--set", f"{key}={text_of(value)}"]
    environment = dict(
        os.environ, TMPDIR=str(folder), OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def write_inputs(folder):
    """Writes c.json, an empty configuration, and text.txt, 200,000 characters."""
    (folder / "c.json").write_text("{}")
    (folder / "text.txt").write_text("".join(chr(48 + (i * i + i // 7) % 65) for i in range(200000)))
