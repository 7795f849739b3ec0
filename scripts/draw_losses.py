#!/usr/bin/env python3
"""Draws the training losses of runs as an SVG picture that is read on light and dark pages.

  scripts/draw_losses.py --output FILE.svg LABEL=RUN [LABEL=RUN ...]

RUN is a run's output directory. A run whose losses are those of one before it, bit for bit, is drawn as dots on its curve, and
the legend says so. Each point is the mean of five steps.
"""
import argparse
import json
import pathlib
import statistics

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 52, 16, 16, 40
COLORS = ["#3b82f6", "#f97316", "#22c55e", "#a855f7"]
GRAY = "#808080"
STEPS_OF_A_POINT = 5


def losses_of(run):
    lines = (json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def ticks(low, high):
    """Round numbers between two limits."""
    step = next(s for s in (0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5) if (high - low) / s <= 6)
    first = -(-low // step)
    return [round((first + i) * step, 2) for i in range(10) if (first + i) * step <= high]


def picture(runs):
    steps = max(len(losses) for _, losses in runs)
    low, high = min(min(losses) for _, losses in runs), max(max(losses) for _, losses in runs)

    def at(step, loss):
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, steps - 1)
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / max(high - low, 1e-9)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">']
    for value in ticks(low, high):
        _, y = at(0, value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRAY}" stroke-opacity="0.25"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{GRAY}">{value:g}</text>')
    for step in range(0, steps + 1, max(1, steps // 6)):
        x, _ = at(step, low)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="{GRAY}">{step}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end" fill="{GRAY}">step</text>')
    drawn = {}
    for i, (label, losses) in enumerate(runs):
        same = drawn.get(tuple(losses))
        drawn.setdefault(tuple(losses), label)
        points = [at(k + STEPS_OF_A_POINT / 2, statistics.mean(losses[k:k + STEPS_OF_A_POINT]))
                  for k in range(0, len(losses) - STEPS_OF_A_POINT + 1, STEPS_OF_A_POINT)]
        color = COLORS[i % len(COLORS)]
        if same:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{color}"/>' for x, y in points[::2]]
        else:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        text = f"{label}: the same bits as {same}" if same else label
        y = TOP + 14 + 20 * i
        parts.append(f'<rect x="{WIDTH - RIGHT - 356}" y="{y - 9}" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT - 340}" y="{y}" fill="{GRAY}">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("runs", nargs="+", metavar="LABEL=RUN")
    options = parser.parse_args()
    options.output.write_text(picture([(label, losses_of(run)) for label, run in (r.split("=", 1) for r in options.runs)]))


if __name__ == "__main__":
    main()
