#!/usr/bin/env python3
"""Prints which folders include which, and fails where an include points up.

  scripts/includes.py            the picture; exit status 1 where an arrow points up
  scripts/includes.py --list     and every include that points up, with its file

Two pictures: the top folders of the repository, and the modules inside them, by the floors that
tests/meta/include_order_test.cpp states. A row is a folder, highest floor first; behind it stand the
folders that it includes, each with the number of includes. A folder may include lower floors only;
benchmarks and tests may include each other.
"""
import argparse
import collections
import pathlib
import re
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOP = {"runtime": 0, "kernels": 1, "models": 1, "launcher": 2, "benchmarks": 3, "tests": 3}
ON_TOP = {"benchmarks", "tests"}  # no folder stands on them, so they may include each other
FLOORS = "tests/meta/include_order_test.cpp"
ENDINGS = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def module_floors(root):
    """{module: floor}, as the table of the C++ test states it."""
    rows = re.findall(r'\{"([a-z_/]+)",\s*(\d+)\}', (root / FLOORS).read_text())
    if not rows:
        sys.exit(f"{FLOORS}: no table of floors found")
    return {name: int(floor) for name, floor in rows}


def includes(root):
    """(including file, included file) of every #include of a project file, relative to the root."""
    for folder in sorted(TOP):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in ENDINGS:
                for included in INCLUDE.findall(path.read_text()):
                    if included.split("/")[0] in TOP:
                        yield path.relative_to(root).as_posix(), included


def folder_of(path, floors):
    """The longest entry of the table that `path` lies in, or None."""
    inside = [name for name in floors if path.startswith(name + "/")]
    return max(inside, key=len, default=None)


def count_arrows(pairs, floors):
    """{(from, to): [including file and included file, ...]} between different folders of the table."""
    arrows = collections.defaultdict(list)
    for path, included in pairs:
        here, there = folder_of(path, floors), folder_of(included, floors)
        if here and there and here != there:
            arrows[here, there].append((path, included))
    return arrows


def points_up(arrow, floors):
    return floors[arrow[1]] >= floors[arrow[0]] and not ON_TOP.issuperset(arrow)


def picture(arrows, floors):
    width = max(map(len, floors))
    lines = []
    for name in sorted(floors, key=lambda n: (-floors[n], n)):
        targets = sorted((a[1] for a in arrows if a[0] == name), key=lambda n: (-floors[n], n))
        words = [f"{t} {len(arrows[name, t])}{' (UP)' if points_up((name, t), floors) else ''}"
                 for t in targets]
        lines.append(f"{floors[name]:2}  {name:{width}} -> {', '.join(words) or 'nothing'}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every include that points up")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another source tree")
    arguments = parser.parse_args()
    pairs = list(includes(arguments.root))
    up = 0
    for title, floors in (("Top folders", TOP), ("Modules", module_floors(arguments.root))):
        arrows = count_arrows(pairs, floors)
        print(f"{title} (floor, folder, included folders with the number of includes)\n")
        print(picture(arrows, floors) + "\n")
        for arrow, found in arrows.items():
            if points_up(arrow, floors):
                up += 1
                if arguments.list:
                    print("\n".join(f"{path} includes {included}" for path, included in found) + "\n")
    if up:
        sys.exit(f"{up} arrows point up (scripts/includes.py --list names the includes)")
    print("no arrow points up")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... | head` ends it quietly
    main()
