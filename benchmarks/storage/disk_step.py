#!/usr/bin/env python3
"""Compares a step whose optimizer state is on disk with what bounds it.

    python3 benchmarks/storage/disk_step.py FOLDER [--batches 4,16] [--read_ahead 0,64MB] [--write FILE.json]

FOLDER is on the drive. For each batch and read_ahead three contenders take turns, and the one that begins changes from
round to round: the step with the optimizer on disk, the same step with the optimizer on the device (the compute floor),
and the disk store, which reads and writes files of each rank's size beside each other. The disk floor is the bytes that
`dstrain plan --json` says a step reads and writes, over the speeds that the store has just had with the same section
aio. Prints the three times in ms and the ratio max(compute floor, disk floor) over step: medians over rounds, of the
ratio also the lowest and the highest. Needs the targets dstrain and disk_bench of the preset release.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/peers"))
from contenders import VOCABULARY, Dstrain, processor  # noqa: E402

AIO = {"block_size": 1 << 20, "queue_depth": 128, "intra_op_parallelism": 1}


class Store:
    """A disk_bench for each rank; they move their files at the same time."""

    def __init__(self, program, folder, ranks, size):
        words = [program.parent / "disk_bench", folder, size, *AIO.values()]
        self.processes = [
            subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(ranks)
        ]

    def speed(self, direction):
        """Returns the bytes per second of one rank while all move theirs."""
        for process in self.processes:
            process.stdin.write(direction + "\n")
            process.stdin.flush()
        return min(float(process.stdout.readline()) for process in self.processes)

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def moved(program, config, ranks):
    """Returns the bytes that a rank reads from and writes to disk in a step, by its plan."""
    command = [str(program), "plan", "--json", "--config", str(config), "--num_gpus", str(ranks), "--device", "cpu"]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # An instruction's bytes are those that it reads and those that it writes.
    return {
        op: sum(i["bytes"] for i in plan["instructions"] if i["op"] == op) / 2 for op in ("swap_in", "swap_out")
    }


def measure(options, batch, read_ahead, folder):
    model = {
        "type": "gptlite", "n_layer": options.layers, "n_embd": options.embd, "n_head": 6, "block_size": options.seq,
        "dropout": 0.0, "vocab_size": VOCABULARY,
    }  # fmt: skip
    drive = tempfile.mkdtemp(prefix="dstrain-disk-step-", dir=options.folder)
    on_disk = {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": drive}},
        "dstrain": {"offload": {"read_ahead": read_ahead}},
        "aio": AIO,
    }
    contenders = []
    try:
        def start(name, settings):
            contenders.append(Dstrain(str(options.program), model, batch, options.dtype, folder / name, options.ranks,
                                      settings))
            return contenders[-1]

        step = start("disk", on_disk)
        floor = start("device", {"zero_optimization": {"stage": 3}})
        bytes_of = moved(options.program, folder / "disk/config.json", options.ranks)
        store = Store(options.program, drive, options.ranks, int(max(bytes_of.values())) // 4096 * 4096)
        contenders.append(store)
        rows = []
        for number in range(options.rounds):
            row = {}
            turns = [
                lambda: row.update(step_ms=statistics.median(step.block(options.steps))),
                lambda: row.update(compute_ms=statistics.median(floor.block(options.steps))),
                lambda: row.update(disk_ms=1e3 * (bytes_of["swap_in"] / store.speed("read")
                                                  + bytes_of["swap_out"] / store.speed("write"))),
            ]
            for turn in turns if number % 2 == 0 else reversed(turns):
                turn()
            row["ratio"] = max(row["compute_ms"], row["disk_ms"]) / row["step_ms"]
            rows.append(row)
        return {
            "batch": batch, "read_ahead": read_ahead, "dtype": options.dtype, "layers": options.layers,
            "embd": options.embd, "seq": options.seq, "ranks": options.ranks, "read_bytes": bytes_of["swap_in"],
            "written_bytes": bytes_of["swap_out"], "rounds": rows,
            **{key: statistics.median(row[key] for row in rows) for key in rows[0]},
        }  # fmt: skip
    finally:
        for contender in contenders:
            contender.close()
        shutil.rmtree(drive)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="on the drive")
    parser.add_argument("--batches", default="4,16", help="samples per rank and step")
    parser.add_argument("--read_ahead", default="0", help="values of dstrain.offload.read_ahead")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--embd", type=int, default=384)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="steps per block")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/dstrain",
                        help="disk_bench is beside it")
    parser.add_argument("--write", help="a file for the results, as JSON")
    options = parser.parse_args()
    results = []
    print(f"{'batch':>5} {'read_ahead':>10}  {'step ms':>8} {'compute':>8} {'disk':>8}   ratio (lowest-highest)")
    for batch in map(int, options.batches.split(",")):
        for read_ahead in options.read_ahead.split(","):
            with tempfile.TemporaryDirectory(prefix="dstrain-disk-step-") as folder:
                row = measure(options, batch, read_ahead, pathlib.Path(folder))
            results.append(row)
            ratios = [r["ratio"] for r in row["rounds"]]
            print(f"{batch:5} {read_ahead:>10}  {row['step_ms']:8.1f} {row['compute_ms']:8.1f} {row['disk_ms']:8.1f}   "
                  f"{row['ratio']:.2f} ({min(ratios):.2f}-{max(ratios):.2f})", flush=True)
            if options.write:
                record = {"processor": processor(), "aio": AIO, "results": results}
                pathlib.Path(options.write).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
