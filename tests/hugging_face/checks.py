"""What the checks of this folder share: distances, a line for each comparison, and the list of those that failed."""

import math

failures = []


def larger(a, b):
    """Returns the larger of two distances, NaN if either is NaN, which max() would drop."""
    return a if math.isnan(a) or a >= b else b


def largest_relative_distance(found, expected):
    """Returns the largest distance of two elements relative to the expected one. Raises ValueError if the lengths differ."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        worst = larger(worst, abs(a - b) / abs(b))
    return worst


def report(what, found, limit):
    good = found <= limit
    print(f"{'ok  ' if good else 'FAIL'} {what}: {found:.3g} (at most {limit:.3g})")
    if not good:
        failures.append(what)


def expect(what, good):
    print(f"{'ok  ' if good else 'FAIL'} {what}")
    if not good:
        failures.append(what)
