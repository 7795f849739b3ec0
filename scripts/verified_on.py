#!/usr/bin/env python3
"""Writes the table in docs/features.md of machines on which the GPU check ran, from benchmarks/results/gpu_*/checks.json.

  scripts/verified_on.py            rewrites the table
  scripts/verified_on.py --check    exit 1 where the table is not what the files say
"""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- verified on: scripts/verified_on.py -->", "<!-- end -->"


def row(path):
    r = json.loads(path.read_text())
    by_result = {result: [s["name"] for s in r["steps"] if s["result"] == result]
                 for result in ("failed", "skipped")}
    verdict = "failed: " + ", ".join(by_result["failed"]) if by_result["failed"] else "passed"
    if by_result["skipped"]:
        verdict += "; skipped: " + ", ".join(by_result["skipped"])
    return f"| {r['gpu']} | {r['driver']} | {r['cuda']} | {r['commit'][:10]} | {r['date']} | {verdict} |"


def table():
    # A check on a machine without a GPU says nothing about GPUs.
    files = sorted((ROOT / "benchmarks" / "results").glob("gpu_*/checks.json"))
    rows = [row(path) for path in files if json.loads(path.read_text())["gpu"]]
    if not rows:
        return "GPUs: never run on a GPU.\n"
    return "\n".join(["| GPU | driver | CUDA | commit | date | scripts/gpu_check.sh |",
                      "|---|---|---|---|---|---|", *rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    page = ROOT / "docs/features.md"
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"docs/features.md: expected the lines '{BEGIN}' and '{END}' once each")
    head, rest = text.split(BEGIN)
    wanted = f"{head}{BEGIN}\n{table()}{END}{rest.split(END)[1]}"
    if wanted == text:
        return
    if check:
        sys.exit("docs/features.md: the table of GPUs is not what benchmarks/results says: run scripts/verified_on.py")
    page.write_text(wanted)


main()
