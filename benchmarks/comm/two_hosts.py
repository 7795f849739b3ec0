#!/usr/bin/env python3
"""Compares the bandwidth of collectives between two hosts with iperf3's over the same link, alternately. The
hosts are network namespaces with their own names and addresses, joined by a virtual link. Needs root, iproute2,
iperf3 and Open MPI.

    python3 benchmarks/comm/two_hosts.py [--rates 1gbit,unlimited] [--rounds 3] [--ranks 2] [--megabytes 64]

The bus bandwidth of a collective is what each direction of the link would carry if the hosts formed a ring:
2(H-1)/H n bytes in the time of an all-reduce, (H-1)/H n bytes in that of a reduce-scatter or an all-gather, so
n and n/2 for two hosts. Sums in rank order may send more bytes than a ring (runtime/comm/hosts/routes.h):
half as much again for 16-bit sums with two ranks per host and for scattered sums. Prints the medians and their
ratios to iperf3 in one direction and in both directions at once.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# mpirun calls this agent instead of ssh: it enters the host's namespace and sets the host's name.
AGENT = """#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
"""


def sh(*words, **kwargs):
    return subprocess.run(words, check=True, capture_output=True, text=True, **kwargs).stdout


class TwoHosts:
    """Two namespaces, A and B, and a link between them. Removed at the end."""

    def __init__(self):
        self.names = [f"dst{os.getpid()}{x}" for x in "ab"]
        self.addresses = ["198.18.0.1", "198.18.0.2"]

    def __enter__(self):
        try:
            for name in self.names:
                sh("ip", "netns", "add", name)
            a, b = self.names
            sh("ip", "-n", a, "link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", b)
            for name, address in zip(self.names, self.addresses):
                sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                sh("ip", "-n", name, "link", "set", "eth0", "up")
                sh("ip", "-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def limit(self, rate):
        """Limits what every host sends to `rate`."""
        for name in self.names:
            clear = ["tc", "-n", name, "qdisc", "del", "dev", "eth0", "root"]
            subprocess.run(clear, capture_output=True)
            if rate != "unlimited":
                limits = ["rate", rate, "burst", "512kb", "latency", "50ms"]
                sh("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *limits)

    def inside(self, i, *words):
        return ["ip", "netns", "exec", self.names[i], *words]

    def iperf(self, seconds, *words):
        """Returns the bits per second that the receiver saw in one direction."""
        server = subprocess.Popen(
            self.inside(1, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(0.3)
            client = ["iperf3", "-c", self.addresses[1], "-t", str(seconds), "-J", *words]
            end = json.loads(sh(*self.inside(0, *client)))["end"]
        finally:
            server.terminate()
            server.wait()
        both = [end[key] for key in ("sum_received", "sum_received_bidir_reverse") if key in end]
        return min(x["bits_per_second"] for x in both)

    def mpirun(self, agent, ranks, *program):
        hosts = ",".join(f"{name}:{ranks}" for name in self.names)
        # Open MPI looks hosts up by name; both namespaces use this file.
        command = self.inside(
            0, "unshare", "--uts", "--mount", "sh", "-c",
            f"hostname {self.names[0]}; mount --bind {agent.parent}/hosts /etc/hosts; exec \"$@\"",
            "sh", "mpirun", "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent),
            "--host", hosts, "-np", str(2 * ranks), *program,
        )  # fmt: skip
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        environment |= {f"OMPI_ALLOW_RUN_AS_ROOT{x}": "1" for x in ("", "_CONFIRM")}
        return sh(*command, env=environment)


def bus_bytes(name, whole):
    return whole if name == "all_reduce" else whole / 2


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rates", default="1gbit,unlimited", help="link rates in tc's notation")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ranks", type=int, default=2, help="ranks per host")
    p.add_argument("--megabytes", type=int, default=64)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/link_bench"))
    a = p.parse_args()
    with TwoHosts() as hosts, tempfile.TemporaryDirectory() as folder:
        agent = pathlib.Path(folder) / "agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        names = "".join(f"{x} {y}\n" for x, y in zip(hosts.addresses, hosts.names))
        (agent.parent / "hosts").write_text("127.0.0.1 localhost\n" + names)
        for rate in a.rates.split(","):
            hosts.limit(rate)
            one_way, both_ways, ours = [], [], {}
            for _ in range(a.rounds):
                one_way.append(hosts.iperf(2))
                both_ways.append(hosts.iperf(2, "--bidir"))
                text = hosts.mpirun(agent, a.ranks, a.program, str(a.megabytes))
                for line in text.splitlines():
                    name, dtype, whole, seconds = line.split()
                    bandwidth = 8 * bus_bytes(name, int(whole)) / float(seconds)
                    ours.setdefault(f"{name} {dtype}", []).append(bandwidth)
            single, double = statistics.median(one_way), statistics.median(both_ways)
            print(f"{rate}: iperf3 {single / 1e9:.3f} Gbit/s one way, {double / 1e9:.3f} each way")
            for name, values in ours.items():
                value = statistics.median(values)
                print(
                    f"  {name:20} {value / 1e9:8.3f} Gbit/s bus bandwidth,"
                    f" {value / single:.2f} of one way, {value / double:.2f} of each way"
                )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
