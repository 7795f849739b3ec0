#!/usr/bin/env python3
"""A slow and lossy link between two network namespaces, for kernels without netem.

    slow_link.py PID PID SECONDS LOSS

Gives each namespace (that of the process PID) an interface slow0, 10.78.0.1 and 10.78.0.2, prints "ready",
and carries what one sends to the other SECONDS later, but for a share LOSS of the frames. Runs until killed.
"""
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAMES_AT_ONCE = 64


def enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def interface(pid, address):
    """A descriptor that reads what the namespace sends by slow0, and writes what it receives."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY))
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"slow0", IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "addr", "add", f"{address}/24", "dev", "slow0"], check=True)
    subprocess.run(["ip", "link", "set", "slow0", "up"], check=True)
    enter(home)
    return fd


def main():
    ends = [interface(pid, f"10.78.0.{i + 1}") for i, pid in enumerate(sys.argv[1:3])]
    delay, loss = float(sys.argv[3]), float(sys.argv[4])
    under_way = deque()  # (when it arrives, at which end, the frame)
    print("ready", flush=True)
    while True:
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            os.write(end, frame)
        wait = max(0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            for _ in range(FRAMES_AT_ONCE):
                try:
                    frame = os.read(end, 65536)
                except BlockingIOError:
                    break
                if random.random() >= loss:
                    under_way.append((time.monotonic() + delay, ends[end == ends[0]], frame))


if __name__ == "__main__":
    main()
