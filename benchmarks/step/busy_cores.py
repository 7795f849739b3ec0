#!/usr/bin/env python3
"""Times a step beside other busy processes: how much a run slows down where the cores are not its own.

    benchmarks/step/busy_cores.py PROGRAM... [--loops 0,1,2,4] [--rounds 5] [--steps 60]

PROGRAM is a dstrain, or NAME=VALUE,...:dstrain with variables of its own, such as
OMP_WAIT_POLICY=active:dstrain. Each runs as one rank of one thread, as one rank of as many threads as
there are cores, and as so many ranks of one thread, beside so many loops that do nothing but use a core.
All of them take turns: a round has one run of each. Prints medians of the rounds, in ms a step; the ratios
are those within a round, with the lowest and the highest.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peers"))
from contenders import processor  # noqa: E402


def configuration(folder, steps):
    text = "".join(f"the quick brown fox jumps over the lazy dog {i}\n" for i in range(2000))
    (folder / "text.txt").write_text(text)
    model = {"type": "gptlite", "n_layer": 4, "n_embd": 128, "n_head": 4, "block_size": 32, "dropout": 0}
    data = {"path": "text.txt", "val_fraction": 0}
    config = {
        "train_batch_size": 8,
        "steps_per_print": steps,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "dstrain": {"model": model, "data": data, "steps": steps},
    }
    (folder / "c.json").write_text(json.dumps(config))


class Loops:
    """Processes that keep cores busy while this object is used."""

    def __init__(self, count):
        self.processes = [
            subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def measure(folder, contender, ranks, threads):
    """Returns the mean ms of a step after the first tenth, CPU seconds, and context switches of one run."""
    variables, _, program = contender.rpartition(":")
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    environment.update(pair.split("=", 1) for pair in variables.split(",") if pair)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(pathlib.Path(program).resolve()), "--config", "c.json", "--device", "cpu",
         "--num_gpus", str(ranks), "--output", "out", "--overwrite"],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{contender} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    times = [line["step_ms"] for line in lines if "step_ms" in line]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
    return statistics.mean(times[len(times) // 10 :]), cpu, switches


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--loops", default="0,1,2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    forms = {"1 rank x 1": (1, 1), f"1 rank x {cores}": (1, cores), f"{cores} ranks x 1": (cores, 1)}
    print(f"{processor()}, {cores} cores; load {os.getloadavg()[0]:.1f} before")
    columns = ["loops", "program", "ranks x threads", "ms a step", "over one thread"]
    columns += ["over the first program", "CPU s", "switches"]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    with tempfile.TemporaryDirectory(prefix="dstrain-busy-") as name:
        folder = pathlib.Path(name)
        configuration(folder, options.steps)
        for loops in map(int, options.loops.split(",")):
            found = {}
            with Loops(loops):
                for _ in range(options.rounds):
                    for program in options.programs:
                        for form, (ranks, threads) in forms.items():
                            run = measure(folder, program, ranks, threads)
                            found.setdefault((program, form), []).append(run)
            for (program, form), runs in found.items():
                ms = [run[0] for run in runs]
                one = [run[0] for run in found[program, "1 rank x 1"]]
                first = [run[0] for run in found[options.programs[0], form]]
                row = [loops, program, form, f"{statistics.median(ms):.1f}"]
                row.append(spread([a / b for a, b in zip(ms, one)]))
                row.append(spread([a / b for a, b in zip(ms, first)]))
                row.append(f"{statistics.median(run[1] for run in runs):.1f}")
                row.append(f"{statistics.median(run[2] for run in runs):.0f}")
                print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
