"""What the checks of this folder share: a line for each comparison, and the list of those that failed."""

failures = []


def report(what, found, limit):
    good = found <= limit
    print(f"{'ok  ' if good else 'FAIL'} {what}: {found:.3g} (at most {limit:.3g})")
    if not good:
        failures.append(what)


def expect(what, good):
    print(f"{'ok  ' if good else 'FAIL'} {what}")
    if not good:
        failures.append(what)
