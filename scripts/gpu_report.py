#!/usr/bin/env python3
"""Writes the results of a part of scripts/gpu_check.sh as one JSON and says what failed and what was skipped.

  scripts/gpu_report.py --steps steps.jsonl --figures figures.json --texts FOLDER [--output FILE] KEY=VALUE...

Exit 1 where a step failed. A file of figures or a folder of texts that does not exist counts as empty.
"""
import argparse
import json
import os
import pathlib
import sys


def results(steps, figures, texts, facts):
    return {
        **{key: value or None for key, value in facts.items()},
        "steps": [json.loads(line) for line in steps.read_text().splitlines()],
        "texts": {p.name: p.read_text().strip() for p in sorted(texts.glob("*"))},
        "figures": json.loads(figures.read_text()) if figures.exists() else {},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("steps", "figures", "texts"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, help="absent: nothing is written")
    parser.add_argument("--add", nargs=4, metavar=("NAME", "RESULT", "SECONDS", "REASON"),
                        help="a step, put to the others first")
    parser.add_argument("--quiet", action="store_true", help="write, and say nothing")
    parser.add_argument("facts", nargs="*", metavar="KEY=VALUE")
    o = parser.parse_args()
    if o.add:
        name, result, seconds, reason = o.add
        step = {"name": name, "result": result, "seconds": int(seconds)}
        with o.steps.open("a") as steps:
            steps.write(json.dumps(step | ({"reason": reason} if reason else {})) + "\n")
    all_results = results(o.steps, o.figures, o.texts, dict(f.split("=", 1) for f in o.facts))
    if o.output:
        beside = o.output.with_name(o.output.name + ".new")
        beside.write_text(json.dumps(all_results, indent=1) + "\n")
        os.replace(beside, o.output)  # whoever is ended meanwhile leaves a whole file
    if o.quiet:
        return
    by = {result: [s["name"] for s in all_results["steps"] if s["result"] == result]
          for result in ("passed", "failed", "skipped")}
    print("written:", o.output or "nothing")
    for result in ("failed", "skipped"):
        if by[result]:
            print(f"{result}: " + "; ".join(by[result]))
    none = "" if all_results["gpu"] else " (no GPU here: nothing above says that dstrain runs on one)"
    print(", ".join(f"{len(names)} {result}" for result, names in by.items()) + none)
    sys.exit(1 if by["failed"] else 0)


main()
