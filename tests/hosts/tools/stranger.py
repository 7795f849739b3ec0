#!/usr/bin/env python3
"""A stranger in the network of a run: connects to a port of the run and does what no process of the run does.

    stranger.py ADDRESS PORT lines    one connection for each of many malformed first messages
    stranger.py ADDRESS PORT endless  40 connections with a line that does not end, of 63 MiB where that is taken
    stranger.py ADDRESS PORT silent   200 connections that say nothing, until the end of standard input
    stranger.py ADDRESS PORT reach    prints "reached" or "refused"
    stranger.py ADDRESS PORT say KEY LINE...  greets as one of the run who knows the key; prints what comes back

Fails if a connection of `lines` or `endless` is not closed by the other end.
"""
import contextlib
import hmac
import json
import socket
import sys

SECONDS = 20  # until a connection that has said something must be closed
MIB = 1 << 20

LINES = [
    b'{"token":5}\n',
    b'{"token":"x","host":{}}\n',
    b'{"token":null}\n',
    b'{"token":["' + b'x' * 3000 + b'"]}\n',
    b'{"host":1e300}\n',
    b'{"proof":7}\n',
    b'{"proof":"' + b'0' * 64 + b'","nonce":[],"say":[]}\n',
    b'{"proof":"' + b'f' * 64 + b'","nonce":"' + b'f' * 64 + b'","say":{}}\n',
    b'{"node":1,"nnodes":2,"slots":1}\n',
    b'{}\n',
    b'[]\n',
    b'null\n',
    b'\n',
    b'\x00\xff\n',
    b'[' * 4000 + b'\n',
    b'x' * 4097,
    b'GET / HTTP/1.1\r\nHost: x\r\n\r\n',
    b'SSH-2.0-OpenSSH_9.2\r\n',
]


def connect(address):
    return socket.create_connection(address, timeout=SECONDS)


def closed(connection):
    """Returns whether the other end closes the connection."""
    try:
        while connection.recv(MIB):
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def lines(address):
    for line in LINES:
        with connect(address) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(line)
            if not closed(connection):
                sys.exit(f'{line[:40]!r}: the connection stays open')


def endless(address):
    connections = [connect(address) for _ in range(40)]
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            for _ in range(63):
                connection.sendall(b'x' * MIB)
    for connection in connections:
        if not closed(connection):
            sys.exit('the connection stays open')


def silent(address):
    connections = [connect(address) for _ in range(200)]
    print(len(connections), 'connections', flush=True)
    sys.stdin.read()


def reach(address):
    try:
        connect(address).close()
        print('reached')
    except ConnectionRefusedError:
        print('refused')


def mac(key, text):
    return hmac.new(key.encode(), text.encode(), 'sha256').hexdigest()


def say(address, key, *texts):
    """Greets as a process of the run does that knows the key."""
    with connect(address) as connection:
        stream = connection.makefile('r', errors='replace')
        theirs = json.loads(stream.readline())['challenge']
        mine = 'a' * len(theirs)
        proof = mac(key, f'dstrain proof of the connector {theirs} {mine}')
        connection.sendall(json.dumps({'challenge': mine, 'proof': proof}).encode() + b'\n')
        print(stream.readline(), end='')
        secret = mac(key, f'dstrain messages of the connector {theirs} {mine}')
        for number, text in enumerate(texts):
            connection.sendall((mac(secret, f'{number} {text}') + text + '\n').encode())
        with contextlib.suppress(TimeoutError, ConnectionError):
            for line in stream:
                print(line, end='')


if __name__ == '__main__':
    where = (sys.argv[1], int(sys.argv[2]))
    {'lines': lines, 'endless': endless, 'silent': silent, 'reach': reach, 'say': say}[sys.argv[3]](where, *sys.argv[4:])
