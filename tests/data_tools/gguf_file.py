"""GGUF files, written and read as docs/formats.md describes them, in Python of its own."""
import struct

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
CODES = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"),
         "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def number(kind, value):
    return struct.pack("<" + CODES[kind][1], value)


def value_bytes(value):
    """(kind, number), a string, ("str", [strings]) or (kind, [numbers]), with its type before it."""
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", 8) + string(value)
    kind, content = value
    if not isinstance(content, list):
        return struct.pack("<I", CODES[kind][0]) + number(kind, content)
    body = b"".join(string(one) if kind == "str" else number(kind, one) for one in content)
    return struct.pack("<IIQ", 9, 8 if kind == "str" else CODES[kind][0], len(content)) + body


def file_bytes(keys, tensors, version=3, alignment=32):
    """tensors: [(name, shape outermost first, type, bytes)]."""
    head, data = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys)), b""
    for key, value in keys.items():
        head += string(key) + value_bytes(value)
    for name, shape, kind, content in tensors:
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % alignment)
    return head + bytes(-len(head) % alignment) + data


class Reader:
    """keys, and tensors: {name: (shape, type, bytes)}."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        magic, version, tensors, keys = self.take("4sIQQ")
        assert magic == b"GGUF" and version in (2, 3)
        self.keys = {}
        for _ in range(keys):
            key = self.text()
            self.keys[key] = self.value(self.take("I")[0])
        listed = []
        for _ in range(tensors):
            name, (rank,) = self.text(), self.take("I")
            listed.append((name, self.take(f"{rank}Q")[::-1], *self.take("IQ")))
        alignment = self.keys.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        self.tensors = {}
        for name, shape, kind, offset in listed:
            count = 1
            for size in shape:
                count *= size
            size = {F32: 4 * count, F16: 2 * count, BF16: 2 * count, Q8_0: count // 32 * 34}[kind]
            assert offset % alignment == 0 and start + offset + size <= len(self.data)
            self.tensors[name] = (shape, kind, self.data[start + offset:start + offset + size])

    def take(self, form):
        size = struct.calcsize("<" + form)
        self.at += size
        return struct.unpack("<" + form, self.data[self.at - size:self.at])

    def text(self):
        (size,) = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take({code: form for code, form in CODES.values()}[kind])[0]
