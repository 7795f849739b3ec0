#!/usr/bin/env python3
"""Times our optimizer phase on the host and those of DeepSpeed's CPUAdam and PyTorch's fused AdamW alternately, and
prints the median ratio of the peer's time to ours. Writes benchmarks/results/optimizers.json.

    .deps/peer/bin/python benchmarks/peers/compare_optimizers.py [--peers NAME...] [--threads N...]
"""
import argparse
import json
import pathlib
import statistics
import sys

from contenders import ROOT, Asked, processor, take_turns


def compare(peer, threads, o):
    environment = {"OMP_NUM_THREADS": str(threads), "DS_ACCELERATOR": "cpu"}
    script = str(ROOT / "benchmarks/peers/optimizer_phase.py")
    settings = ["--millions", str(o.millions), "--threads", str(threads)]
    ours = Asked([o.program, str(threads), str(o.millions)], [environment])
    theirs = Asked([o.python, script, "--program", peer] + settings, [environment])
    try:
        our_ms, their_ms, ratios = take_turns(ours, theirs, o.rounds, 1)
        return {
            "peer": peer,
            "version": theirs.version,
            "threads": threads,
            "millions": o.millions,
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "dstrain_ms": statistics.median(our_ms),
            "peer_ms": statistics.median(their_ms),
        }
    finally:
        ours.close()
        theirs.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--peers", nargs="+", default=["deepspeed", "torch"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--millions", type=int, default=100)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/optimizer_phase"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/optimizers.json"))
    o = p.parse_args()
    if o.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")
    path = pathlib.Path(o.result)
    # Earlier results of other cases are kept if they come from the same kind of machine.
    old = json.loads(path.read_text()) if path.exists() else {}
    results = old.get("results", []) if old.get("processor") == processor() else []
    record = {"processor": processor(), "results": results}
    for peer in o.peers:
        for threads in o.threads:
            r = compare(peer, threads, o)
            results[:] = [x for x in results if (x["peer"], x["threads"]) != (peer, threads)] + [r]
            print(
                f"{peer:10} {threads} threads {r['dstrain_ms']:8.1f} ms {r['peer_ms']:8.1f} ms "
                f"{r['ratio']:5.2f}x   {min(r['ratios']):.2f}-{max(r['ratios']):.2f}",
                flush=True,
            )
            path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
