"""A small trace of CTF 2 in which every kind of field stands once: what `ctf2/kinds` was made with.

Usage: ctf2_kinds.py FOLDER
"""

import json
import os
import struct
import sys

LE, BE = "little-endian", "big-endian"


def bits(kind, length, order=LE, **more):
    more.setdefault("alignment", 8 if length % 8 == 0 else 1)
    return {"type": "fixed-length-" + kind, "length": length, "byte-order": order, **more}


def text(form, **more):
    return {"type": form + "-string", **more}


def structure(*members, **more):
    members = [{"name": name, "field-class": kind} for name, kind in members]
    return {"type": "structure", "member-classes": members, **more}


def at(*path, **more):
    return {"path": list(path), **more}


def role(length, *roles):
    return bits("unsigned-integer", length, roles=list(roles))


UINT = "unsigned-integer"
# Of an event's payload: name, class and bytes. Fields of less than a byte stand together.
FIELDS = [
    ("hexadecimal", bits(UINT, 32, BE, **{"preferred-display-base": 16}), b"\0\xc0\xff\xee"),
    ("binary", bits("signed-integer", 5, **{"preferred-display-base": 2}), None),
    ("octal", bits("signed-integer", 3, **{"preferred-display-base": 8}), b"\xb5"),
    ("last to first", bits(UINT, 8, **{"bit-order": "last-to-first"}), b"\x03"),
    ("several labels", bits(UINT, 8, mappings={
        "small": [[0, 9]], "odd": [[1, 1], [3, 3]], "three": [[3, 3]], "none": [[7, 7]]}), b"\3"),
    ("no label", bits("signed-integer", 16, mappings={"minus": [[-9, -1]]}), b"\5\0"),
    ("array of bits", bits("bit-array", 12), None),
    ("rest", bits("boolean", 4), b"\xab\x1c"),
    ("map of bits", bits("bit-map", 16, flags={
        "low": [[0, 0]], "high": [[15, 15]], "any of four": [[4, 7]]}), b"\x41\x80"),
    ("no bits", bits("bit-map", 8, flags={"one": [[1, 1]]}), b"\0"),
    ("truth", bits("boolean", 8), b"\2"),
    ("single", bits("floating-point-number", 32, BE), struct.pack(">f", -0.1)),
    ("double", bits("floating-point-number", 64), struct.pack("<d", 1e-9)),
    ("varying", {"type": "variable-length-unsigned-integer"}, b"\xe5\x8e\x26"),
    ("varying signed", {"type": "variable-length-signed-integer",
                        "mappings": {"x": [[-129, -126]], "y": [[-128, 3]]}}, b"\x80\x7f"),
    ("terminated", text("null-terminated"), "a\tb \"ü\"".encode() + b"\0"),
    ("wide", text("null-terminated", encoding="utf-16le"), "𝄞 wide\0".encode("utf-16le")),
    ("static", text("static-length", length=8), b"four\0..."),
    ("wider", text("static-length", length=12, encoding="utf-32be"), "ü☃\0".encode("utf-32be")),
    ("length", bits(UINT, 8), b"\4"),
    ("dynamic", text("dynamic-length", **{"length-field-location": at("length")}), b"text"),
    ("blob", {"type": "static-length-blob", "length": 3}, b"\0\x7f\xff"),
    ("dynamic blob", {"type": "dynamic-length-blob", "length-field-location":
                      at("length", origin="event-record-payload")}, b"blob"),
    ("array", {"type": "static-length-array", "length": 2, "element-field-class": "small"},
     b"\1\2"),
    ("sequence", {"type": "dynamic-length-array", "length-field-location": at("length"),
                  "element-field-class": structure(("x", "small"))}, b"\1\2\3\4"),
    ("there", {"type": "optional", "selector-field-location": at("length"),
               "selector-field-ranges": [[3, 5]], "field-class": "small"}, b"\x2a"),
    ("not there", {"type": "optional", "selector-field-location": at("length"),
                   "selector-field-ranges": [[0, 3]], "field-class": "small"}, b""),
    ("choice", {"type": "variant", "selector-field-location": at("length"), "options": [
        {"name": "few", "selector-field-ranges": [[0, 3]], "field-class": "small"},
        {"name": "many", "selector-field-ranges": [[4, 9]],
         "field-class": structure(("text", text("null-terminated")))}]}, b"chosen\0"),
    ("_outer", structure(("inner", structure(("up", {
        "type": "static-length-array", "length": 1, "element-field-class": "small"})))), b"\7"),
    ("empty", structure(), b""),
]

FRAGMENTS = [
    {"type": "preamble", "version": 2, "uuid": list(range(16))},
    {"type": "field-class-alias", "name": "small", "field-class": bits(UINT, 8)},
    {"type": "trace-class", "namespace": "example.org", "name": "kinds", "uid": "the only one",
     "environment": {"hostname": "here", "procname": "kinds", "vpid": 7, "domain": "ust"},
     "packet-header-field-class": structure(
         ("magic", role(32, "packet-magic-number")),
         ("uuid", {"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}),
         ("class", role(8, "data-stream-class-id")), ("stream", role(8, "data-stream-id")))},
    {"type": "clock-class", "id": "c", "frequency": 1000000000, "origin": "unix-epoch",
     "offset-from-origin": {"seconds": 1700000000, "cycles": 500}},
    {"type": "data-stream-class", "id": 3, "default-clock-class-id": "c",
     "packet-context-field-class": structure(
         ("total", role(32, "packet-total-length")), ("content", role(32, "packet-content-length")),
         ("begin", role(64, "default-clock-timestamp")),
         ("end", role(64, "packet-end-default-clock-timestamp")),
         ("discarded", role(16, "discarded-event-record-counter-snapshot")),
         ("sequence", role(16, "packet-sequence-number")), ("cpu_id", "small")),
     "event-record-header-field-class": structure(
         ("id", role(8, "event-record-class-id")), ("time", role(32, "default-clock-timestamp"))),
     "event-record-common-context-field-class": structure(("vtid", bits("signed-integer", 16)))},
    {"type": "event-record-class", "id": 0, "data-stream-class-id": 3, "name": "kinds",
     "attributes": {"lttng.org,2009": {"log-level": "warning", "emf-uri": "http://example.org/"}},
     "payload-field-class": structure(*((name, kind) for name, kind, _ in FIELDS))},
    {"type": "event-record-class", "id": 1, "data-stream-class-id": 3,
     "attributes": {"babeltrace.org,2020": {"log-level": "debug:line"}},
     "specific-context-field-class": structure(("ms", text("null-terminated")))},
]


def packet(begin, end, discarded, sequence, events):
    content = b"".join(events)
    head = struct.pack("<I", 0xC1FC1FC1) + bytes(range(16)) + bytes([3, 5])
    size = 8 * (len(head) + 29 + len(content))
    return head + struct.pack("<IIQQHHB", size, size, begin, end, discarded, sequence, 1) + content


def event(number, time, payload):
    return struct.pack("<BIh", number, time % (1 << 32), -number) + payload


def main():
    folder = sys.argv[1]
    os.makedirs(folder)
    payload = b"".join(data for _, _, data in FIELDS if data is not None)
    with open(os.path.join(folder, "metadata"), "w", encoding="utf-8") as out:
        for fragment in FRAGMENTS:
            fragment = json.dumps(fragment, ensure_ascii=False, separators=(",", ":"))
            out.write("\x1e" + fragment + "\n")
    with open(os.path.join(folder, "stream"), "wb") as out:
        out.write(packet(100, 5_000_000_000, 0, 0, [
            event(0, 100, payload), event(1, 4_500_000_000, b"later\0")]))
        out.write(packet(6_000_000_000, 7_000_000_000, 4, 3, [event(1, 6_500_000_000, b"\0")]))


main()
