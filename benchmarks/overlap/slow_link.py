#!/usr/bin/env python3
"""Measures what `overlap_comm` gains: two ranks on two hosts with a slow link between them, with and without it.

    sudo python3 benchmarks/overlap/slow_link.py [--stages 0 2 3] [--mbit 200] [--rounds 5] [--threads 2]

The hosts are two network namespaces of this machine, each with its own host name and address. A veth pair
joins them, limited to --mbit million bits per second in each direction. mpirun starts one rank on each, and the
ranks communicate by TCP, as on a cluster. The namespaces are removed at the end.

The runs with and without overlap alternate. A round is one run of each; a run's time is the median of its steps.
Prints the median over rounds of the ratio, and the seconds per step that rank 0 waits for communication (from
dstrain.trace). Fails unless the losses are equal. Writes benchmarks/results/overlap.json.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import processor  # noqa: E402

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

    def mpirun(self, threads):
        network = f"{NETWORK}.0/24"
        return self.enter(
            0, "mpirun", "--host", "node1:1,node2:1", "-np", "2", "--bind-to", "none",
            "--mca", "plm_rsh_agent", str(self.agent), "--mca", "btl", "self,tcp",
            "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network,
            "-x", f"OMP_NUM_THREADS={threads}", "-x", "OMP_WAIT_POLICY=passive",
        )  # fmt: skip

    def close(self):
        for holder in self.holders:  # the namespaces end with their processes
            holder.stdin.close()
            holder.wait()


def settings(stage, overlap, options, trace):
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "bf16.enabled": options.dtype == "bf16",
        "zero_optimization.stage": stage,
        "zero_optimization.overlap_comm": overlap,
        "zero_optimization.stage3_max_reuse_distance": 0,
        "zero_optimization.stage3_param_persistence_threshold": 0,
        "dstrain.model.n_layer": options.layers,
        "dstrain.model.n_embd": options.width,
        "dstrain.model.n_head": options.width // 64,
        "dstrain.model.block_size": options.seq,
        "dstrain.trace": trace,
        "dstrain.steps": options.steps,
    }


def run(hosts, stage, overlap, options, folder):
    """Runs once. Returns the losses, the median seconds per step, and how many of them rank 0 waits for
    communication."""
    out = folder / "out"
    command = hosts.mpirun(options.threads) + [options.program, "--config", str(folder / "c.json")]
    command += ["--device", "cpu", "--data", str(folder / "text.txt"), "--output", str(out)]
    for key, value in settings(stage, overlap, options, folder / "trace.json").items():
        command += ["--set", f"{key}={json.dumps(value) if isinstance(value, bool) else value}"]
    environment = dict(
        os.environ, TMPDIR=str(folder), OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    exposed = [
        e["args"]["exposed_comm_ms"] / 1e3
        for e in events
        if e["ph"] == "X" and e["pid"] == 0 and e["name"].startswith("step ")
    ]
    return {
        "losses": [s["loss"] for s in steps],
        "step_s": statistics.median(s["step_ms"] for s in steps[1:]) / 1e3,
        "exposed_s": statistics.median(exposed[1:]),
        "comm_bytes": steps[-1]["comm_bytes"],
    }


def compare(hosts, stage, options, folder):
    runs = {True: [], False: []}
    for _ in range(options.rounds):
        for overlap in (True, False):
            runs[overlap].append(run(hosts, stage, overlap, options, folder))
    if any(r["losses"] != runs[True][0]["losses"] for both in runs.values() for r in both):
        sys.exit(f"stage {stage}: the losses differ")
    ratios = [without["step_s"] / w["step_s"] for w, without in zip(runs[True], runs[False])]
    row = {
        "stage": stage, "speedup": statistics.median(ratios), "speedups": ratios,
        "comm_bytes": runs[True][0]["comm_bytes"],
    }  # fmt: skip
    for overlap, name in ((True, "overlap"), (False, "no_overlap")):
        for what in ("step_s", "exposed_s"):
            row[f"{name}_{what}"] = statistics.median(r[what] for r in runs[overlap])
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--stages", type=int, nargs="+", default=[0, 2, 3])
    p.add_argument("--mbit", type=int, default=200, help="rate of the link in either direction")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--threads", type=int, default=2, help="threads per rank")
    p.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "c.json").write_text("{}")
        text = "".join(chr(48 + (i * i + i // 7) % 65) for i in range(200000))
        (folder / "text.txt").write_text(text)
        with contextlib.closing(Hosts(o.mbit, folder)) as hosts:
            print("stage  speed-up (lowest-highest)  step with, without  exposed with, without (s)")
            for stage in o.stages:
                row = compare(hosts, stage, o, folder)
                rows.append(row)
                print(
                    f"{stage:5} {row['speedup']:9.2f} ({min(row['speedups']):.2f}-"
                    f"{max(row['speedups']):.2f}) {row['overlap_step_s']:17.3f}"
                    f" {row['no_overlap_step_s']:7.3f} {row['overlap_exposed_s']:13.3f}"
                    f" {row['no_overlap_exposed_s']:7.3f}",
                    flush=True,
                )
    options = {k: v for k, v in vars(o).items() if k not in ("program", "stages")}
    path = ROOT / "benchmarks/results/overlap.json"
    command = shlex.join(["python3", "benchmarks/overlap/slow_link.py", *sys.argv[1:]])
    result = {"command": command, "processor": processor(), "options": options, "results": rows}
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
