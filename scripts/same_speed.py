#!/usr/bin/env python3
"""Trains with two builds of dstrain in turns and prints the step time of NEW over that of OLD.

  scripts/same_speed.py OLD NEW [--only PART_OF_A_NAME] [--turns N]

OLD and NEW are the programs. Both runs of a cell are started once; then each trains for two seconds while the other is
stopped (SIGSTOP), --turns times. The median of the ratios of neighbouring turns is insensitive to a machine whose speed
changes from minute to minute, and to the start of a run. With it stands the interval that has the true median 95 times
in 100, by order statistics. OLD against itself shows what the machine can tell apart.
"""
import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TURN_S = 2.0
WARM_STEPS = 5
START_S = 120

MODEL = {"type": "gptlite", "n_layer": 4, "n_embd": 256, "n_head": 4, "block_size": 128, "dropout": 0.0}
BF16 = {"bf16": {"enabled": True}}


def cell(ranks, top, **own):
    return ranks, {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, **top,
                   "dstrain": {"model": MODEL, "data": {"path": "data.txt"}, "steps": 10**7, **own}}


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, **more}}


CELLS = {
    "fp32": cell(1, {}),
    "bf16, stage 3, 2 ranks": cell(2, {**BF16, **zero(3)}),
    "fp32, stage 2, 2 ranks": cell(2, zero(2)),
    "bf16, stage 1, optimizer on the host, 2 ranks": cell(2, {**BF16, **zero(1, offload_optimizer={"device": "cpu"})}),
    "fp32, 2 stages of a pipeline, 4 micro-batches": cell(
        2, {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "pipeline": {"stages": 2}}),
    "fp32, Lamb, every layer recomputed": cell(1, {"optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}}, recompute=1),
}


def write_data(path):
    path.write_text("".join(f"{n} quick brown foxes jump over {n * n % 97} lazy dogs\n" for n in range(20000)))


class Run:
    """A training run that can be stopped and continued. It is stopped at first."""

    def __init__(self, program, ranks, settings, folder):
        folder.mkdir()
        self.metrics = folder / "out" / "metrics.jsonl"
        self.read = 0
        (folder / "c.json").write_text(json.dumps(settings))
        write_data(folder / "data.txt")
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.log = open(folder / "log", "wb")
        self.command = subprocess.Popen([program, "--config", "c.json", "--device", "cpu", "--num_gpus", str(ranks),
                                         "--overwrite", "--output", "out"], cwd=folder, env=environment, stdout=self.log,
                                        stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S
        while len(self.steps()) < WARM_STEPS:
            self.read = 0
            if self.command.poll() is not None or time.monotonic() > deadline:
                self.end()
                sys.exit(f"{program} does not train: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.1)
        self.stop()

    def steps(self):
        """Returns the milliseconds of the steps since the last call."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text().splitlines(keepends=True)
        lines = [line for line in lines if line.endswith("\n") and "step_ms" in line]
        new, self.read = lines[self.read:], len(lines)
        return [json.loads(line)["step_ms"] for line in new]

    def processes(self):
        """Returns the run's processes, each before its children."""
        found = [self.command.pid]
        for process in found:
            try:
                for task in os.listdir(f"/proc/{process}/task"):
                    children = pathlib.Path(f"/proc/{process}/task/{task}/children").read_text()
                    found += [int(child) for child in children.split()]
            except FileNotFoundError:  # a process that has ended
                pass
        return found

    def signal(self, number, processes):
        for process in processes:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def stop(self):
        self.signal(signal.SIGSTOP, self.processes())  # the launching process first: it would name a stopped rank

    def turn(self):
        """Trains for a while. Returns the median of the steps that were not interrupted, in milliseconds."""
        self.steps()
        self.signal(signal.SIGCONT, self.processes()[::-1])
        time.sleep(TURN_S)
        self.stop()
        steps = self.steps()[1:]  # the first began in an earlier turn
        if self.command.poll() is not None:
            sys.exit(f"a run ended with exit status {self.command.returncode}")
        if not steps:
            sys.exit("no step was trained in a turn")
        return statistics.median(steps)

    def end(self):
        self.signal(signal.SIGKILL, self.processes())
        self.command.wait()
        self.log.close()


def interval(sorted_ratios):
    """Returns the order statistics between which the true median is with a probability of at least 0.95."""
    n = len(sorted_ratios)
    below, k = 0.5**n, 0
    while k < n // 2 and below + math.comb(n, k + 1) * 0.5**n <= 0.025:
        k += 1
        below += math.comb(n, k) * 0.5**n
    return sorted_ratios[k], sorted_ratios[n - 1 - k]


def compare(programs, ranks, settings, turns):
    """Returns the ratios of neighbouring turns, sorted."""
    with tempfile.TemporaryDirectory() as temporary:
        runs = []
        try:
            for side, program in zip(("old", "new"), programs):
                runs.append(Run(program, ranks, settings, pathlib.Path(temporary, side)))
            ratios = []
            for turn in range(turns):
                order = (0, 1) if turn % 2 == 0 else (1, 0)
                ms = {side: runs[side].turn() for side in order}
                ratios.append(ms[1] / ms[0])
            return sorted(ratios)
        finally:
            for run in runs:
                run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="", metavar="PART", help="the cells whose names have this part")
    parser.add_argument("--turns", type=int, default=31, metavar="N", help="of each program (31)")
    args = parser.parse_args()
    programs = [os.path.abspath(args.old), os.path.abspath(args.new)]
    for name, (ranks, settings) in CELLS.items():
        if args.only in name:
            ratios = compare(programs, ranks, settings, args.turns)
            low, high = interval(ratios)
            print(f"{name}: {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
