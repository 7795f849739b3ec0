#!/usr/bin/env python3
"""Compares the disk store with the best fio job on the same path.

    python3 benchmarks/storage/fio_ratio.py PATH [--size 1000000000] [--rounds 9] [--write FILE.json]

First `dstrain bench-io` finds the store's settings, and fio (libaio, O_DIRECT, a file that is written before) is tried
with each block size and depth, in memory of huge pages as the store's, without which it is slower; its fastest job
counts, one for each direction. Then the two take turns, and the one
that begins changes from round to round. Prints the median over rounds of the store's speed over fio's, with the lowest
and the highest. Needs fio (Debian's package) and the targets dstrain and disk_bench of the preset release.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
BLOCKS = [1 << 17, 1 << 19, 1 << 20, 1 << 22, 1 << 23]
DEPTHS = [8, 32, 128]
HUGE_PAGES = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def fio(file, size, direction, block, depth):
    """Returns bytes per second of one fio job."""
    out = subprocess.run(
        ["fio", "--name=peer", f"--filename={file}", f"--size={size // block * block}", f"--bs={block}",
         f"--iodepth={depth}", "--ioengine=libaio", "--direct=1", "--overwrite=1", f"--rw={direction}",
         "--output-format=json"],
        check=True, capture_output=True, text=True, env=HUGE_PAGES).stdout
    job = json.loads(out[out.index("{"):])["jobs"][0][direction]
    return job["io_bytes"] / (job["runtime"] / 1000)


class Store:
    """disk_bench, which keeps its file until the end."""

    def __init__(self, path, size, aio):
        words = [BIN / "disk_bench", path, size, aio["block_size"], aio["queue_depth"], aio["intra_op_parallelism"]]
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def move(self, direction):
        self.process.stdin.write(direction + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--size", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()

    tuned = subprocess.run([BIN / "dstrain", "bench-io", args.path, "--size", str(args.size), "--seconds", "1",
                            "--json"], check=True, capture_output=True, text=True).stdout
    aio = json.loads(tuned)["aio"]
    print("store:", aio, flush=True)
    with tempfile.NamedTemporaryFile(dir=args.path, prefix="fio_") as file:
        fio(file.name, args.size, "write", 1 << 20, 32)
        best = {}
        for direction in ("write", "read"):
            jobs = {(b, d): fio(file.name, args.size, direction, b, d) for b in BLOCKS for d in DEPTHS}
            best[direction] = max(jobs, key=jobs.get)
            print(f"fio {direction}: block size {best[direction][0]}, depth {best[direction][1]}", flush=True)
        store = Store(args.path, args.size, aio)
        rounds = {"write": [], "read": []}
        for number in range(args.rounds):
            for direction in ("write", "read"):
                sides = [("store", lambda: store.move(direction)),
                         ("fio", lambda: fio(file.name, args.size, direction, *best[direction]))]
                speeds = {name: side() for name, side in (sides if number % 2 == 0 else sides[::-1])}
                rounds[direction].append(speeds)
        store.close()
    result = {"aio": aio, "fio": {k: dict(zip(("block_size", "iodepth"), v)) for k, v in best.items()}, "rounds": rounds}
    for direction, speeds in rounds.items():
        ratios = sorted(s["store"] / s["fio"] for s in speeds)
        result[direction] = {"median": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1]}
        print(f"{direction}: {statistics.median(ratios):.3f} of fio ({ratios[0]:.3f} to {ratios[-1]:.3f}); store "
              f"{statistics.median(s['store'] for s in speeds) / 1e9:.2f} GB/s")
    if args.write:
        args.write.write_text(json.dumps(result, indent=1) + "\n")


main()
