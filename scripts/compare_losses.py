#!/usr/bin/env python3
"""Compares the losses of two runs step by step and prints the largest difference.

  scripts/compare_losses.py A/metrics.jsonl B/metrics.jsonl --within 1e-4 [--first 5 1e-3]

Exit 1 where a difference is larger: --within for every step, --first N LIMIT for the first N.
"""
import argparse
import json
import sys


def losses(path):
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, metavar="METRICS")
    parser.add_argument("--within", type=float, required=True)
    parser.add_argument("--first", nargs=2, type=float, metavar=("N", "LIMIT"))
    args = parser.parse_args()
    a, b = (losses(path) for path in args.runs)
    if not a or a.keys() != b.keys():
        sys.exit(f"the runs have other steps: {len(a)} in {args.runs[0]}, {len(b)} in {args.runs[1]}")
    limits = [(args.within, sorted(a))]
    if args.first:
        limits.append((args.first[1], sorted(a)[: int(args.first[0])]))
    ok = True
    for limit, steps in limits:
        worst = max(steps, key=lambda s: abs(a[s] - b[s]) if a[s] is not None and b[s] is not None else float("inf"))
        missing = a[worst] is None or b[worst] is None
        difference = float("inf") if missing else abs(a[worst] - b[worst])
        ok &= difference <= limit
        print(f"largest difference of the loss over {len(steps)} steps: {difference:.3g} at step {worst} "
              f"({a[worst]} and {b[worst]}), allowed {limit:g}")
    sys.exit(0 if ok else 1)


main()
