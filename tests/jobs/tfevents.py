"""Reading TensorBoard's event files, with nothing of the program that writes them: records checked by a checksum computed bit by bit,
events decoded by hand, and by protoc where that is installed.

    python3 tfevents.py FILE...     prints the events
"""
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PROTO = """syntax = "proto3";
message SessionLog { enum Status { NONE = 0; START = 1; STOP = 2; CHECKPOINT = 3; } Status status = 1; }
message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value = 1; }
message Event { double wall_time = 1; int64 step = 2; oneof what { string file_version = 3; Summary summary = 5; SessionLog session_log = 7; } }
"""


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The data of all records; ValueError: one that is damaged or cut."""
    found = []
    with open(path, "rb") as file:
        data = file.read()
    while data:
        head, length = data[:12], struct.unpack("<Q", data[:8])[0]
        body = data[12:12 + length]
        if len(data) < 16 + length or struct.unpack("<I", head[8:])[0] != masked(head[:8]):
            raise ValueError(f"{path}: a bad length after {len(found)} records")
        if struct.unpack("<I", data[12 + length:16 + length])[0] != masked(body):
            raise ValueError(f"{path}: a bad checksum after {len(found)} records")
        found.append(body)
        data = data[16 + length:]
    return found


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a message: integers, floats, bytes."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            form, size = {1: ("<d", 8), 5: ("<f", 4)}[kind]
            value, at = struct.unpack(form, data[at:at + size])[0], at + size
        found.append((number, value))
    return found


def by_hand(data):
    """An event: {"time", "step"} and "version", "start" or "scalars" {tag: value}."""
    event = {"step": 0}
    for number, value in fields(data):
        if number == 1:
            event["time"] = value
        elif number == 2:
            event["step"] = value
        elif number == 3:
            event["version"] = value.decode()
        elif number == 5:
            event["scalars"] = {dict(fields(one))[1].decode(): dict(fields(one))[2] for _, one in fields(value)}
        elif number == 7:
            event["start"] = fields(value) == [(1, 1)]
        else:
            raise ValueError(f"field {number}")
    return event


def by_protoc(data):
    """The same by protoc, whose text is read; a field that the message lacks is an error."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/event.proto", "w", encoding="ascii") as file:
            file.write(PROTO)
        text = subprocess.run(["protoc", f"-I{folder}", "--decode=Event", "event.proto"], input=data, capture_output=True, check=True).stdout.decode()
    if re.search(r"^ *\d+[ :]", text, re.M):
        raise ValueError(f"unknown fields: {text}")
    numbers = {name: float(value) for name, value in re.findall(r"^(wall_time|step): (\S+)$", text, re.M)}
    event = {"time": numbers["wall_time"], "step": int(numbers.get("step", 0))}
    if "file_version" in text:
        event["version"] = re.search(r'file_version: "(.*)"', text).group(1)
    if "session_log" in text:
        event["start"] = "status: START" in text
    if "summary {" in text:
        pairs = re.findall(r'tag: "(\w+)"\n *simple_value: (\S+)', text)
        event["scalars"] = {tag: struct.unpack("<f", struct.pack("<f", float(value)))[0] for tag, value in pairs}
    return event


def has_protoc():
    return shutil.which("protoc") is not None


def events(path, decode=by_hand):
    return [decode(data) for data in records(path)]


def curve(paths, tag):
    """[(step, value)] as TensorBoard shows it: a start drops all events from its step on."""
    shown = []
    for path in sorted(paths):
        for event in events(path):
            if event.get("start"):
                shown = [one for one in shown if one[0] < event["step"]]
            if tag in event.get("scalars", {}):
                shown.append((event["step"], event["scalars"][tag]))
    return shown


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for one in events(name):
            print(one)
