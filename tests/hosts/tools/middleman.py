#!/usr/bin/env python3
"""A man in the middle of a run: takes over the connections to a port of a host that the kernel delivers here, and passes on what
both ends send until it is told to change something.

    middleman.py PORT inject TEXT   puts TEXT and a line break into what goes to the host
    middleman.py PORT flip          changes one bit of what comes from the host next

Prints "ready" when it listens, and changes something once a line has come on standard input.
"""
import contextlib
import select
import socket
import sys

IP_TRANSPARENT = 19


def listener(port):
    made = socket.socket()
    made.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    made.bind(('0.0.0.0', port))
    made.listen()
    return made


def main():
    listening, what = listener(int(sys.argv[1])), sys.argv[2]
    other, from_host = {}, set()
    told = changed = False
    print('ready', flush=True)
    while True:
        for ready in select.select([listening, *other] + ([] if told else [sys.stdin]), [], [])[0]:
            if ready is sys.stdin:
                told = bool(ready.readline())
                for end in from_host if what == 'inject' else ():
                    end.sendall(sys.argv[3].encode() + b'\n')
            elif ready is listening:
                caller = ready.accept()[0]
                host = socket.create_connection(caller.getsockname())
                other[caller], other[host] = host, caller
                from_host.add(host)
            elif ready in other:
                with contextlib.suppress(ConnectionError):
                    data = bytearray(ready.recv(65536))
                    if data and told and not changed and what == 'flip' and ready in from_host:
                        data[len(data) // 2] ^= 1
                        changed = True
                    if data:
                        other[ready].sendall(data)
                        continue
                for end in (ready, other.pop(ready)):
                    end.close()
                    other.pop(end, None)
                    from_host.discard(end)


if __name__ == '__main__':
    main()
