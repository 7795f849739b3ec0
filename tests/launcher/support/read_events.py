"""Reads TensorBoard's event files of a directory, and prints the values of each tag as JSON: {TAG: [[STEP, VALUE], ...]}.

  read_events.py DIRECTORY                the files' bytes alone, every checksum checked
  read_events.py DIRECTORY --tensorboard  TensorBoard's own reader; status 77 if the package is not installed
"""
import json
import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at : at + 8]), f"checksum of the length at byte {at}"
        record = data[at + 12 : at + 12 + length]
        assert len(record) == length, f"the record at byte {at} is cut"
        (check,) = struct.unpack_from("<I", data, at + 12 + length)
        assert check == masked(record), f"checksum of the record at byte {at}"
        yield record
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Yields (number, value) of a message of protobuf."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert kind == 2, f"wire type {kind}"
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        yield key >> 3, value


def read(directory):
    tags = {}
    for path in sorted(pathlib.Path(directory).glob("events.out.tfevents.*")):
        for i, record in enumerate(records(path.read_bytes())):
            event = dict(fields(record))
            assert event[1] > 1.6e9, "the time"
            assert (event.get(3) == b"brain.Event:2") == (i == 0), "the version comes first"
            if 7 in event:  # a session that starts takes back what is later
                assert dict(fields(event[7])) == {1: 1}
                for tag, values in tags.items():
                    tags[tag] = [v for v in values if v[0] < event[2]]
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                one = dict(fields(value))
                tags.setdefault(one[1].decode(), []).append([event[2], one[2]])
    return tags


def read_with_tensorboard(directory):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        sys.exit(77)
    accumulator = EventAccumulator(directory, size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [[event.step, event.value] for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


print(json.dumps((read_with_tensorboard if "--tensorboard" in sys.argv else read)(sys.argv[1])))
