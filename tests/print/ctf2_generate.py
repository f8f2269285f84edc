"""Random traces of CTF 2, of everything that CTF2-SPEC-2.0 has and babeltrace2 2.1 reads.

Usage: ctf2_generate.py FOLDER FIRST_SEED COUNT

For every seed a trace FOLDER/SEED, the same for the same seed. Neither babeltrace2 nor Trackway
has a part in making them: metadata and bytes are put together here, from the specification. What
babeltrace2 2.1 refuses or reads wrongly is left out, each with its reason.
"""

import json
import os
import random
import sys
import uuid

NAMES = ["event", "struct", "_x", "__x", "x", "timestamp", "id", "v", "two words", "ünïcödé",
         "quote\"d", "Name", "n", "value", "a.b", "stream_id", "len", "[0]", "int", "y", "z", "w"]
LABELS = ["zero", "one", "two words", "quote\"d", "back\\slash", "new\nline", "ünïsönü", "_under",
          "int", "A", "b", "tab\tbed", "many", "a label of some length", "C0", "C1", "C2", "C3"]
TEXTS = ["", "plain", "two words", "quote \" and '", "back\\slash \\n", "line\nfeed\ttab",
         "\x01\x07\x1b\x7f", "ünïcödé ☃ 𝄞", "%s %d %%", "}, { x = 1 }", "y" * 100]
REALS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-7, 123456789.125, 1e16, -1e30, float("inf"), 2.5, 999999.5]
LEVELS = ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug:system",
          "debug:program", "debug:process", "debug:module", "debug:unit", "debug:function",
          "debug:line", "debug", "unknown"]
ENCODINGS = {"utf-8": 1, "utf-16be": 2, "utf-16le": 2, "utf-32be": 4, "utf-32le": 4}
ORIGINS = ["packet-context", "event-record-common-context", "event-record-specific-context",
           "event-record-payload"]
DEPTH_MAX = 3
MAGIC = 0xC1FC1FC1


class Bits:
    """A packet's bytes, bit by bit."""

    def __init__(self):
        self.bytes = bytearray()
        self.position = 0

    def align(self, alignment):
        self.position += -self.position % alignment
        self.extend()

    def extend(self):
        self.bytes.extend(b"\0" * (-(-self.position // 8) - len(self.bytes)))

    def put(self, value, length, order, is_reversed=False):
        at = self.position
        self.position += length
        self.extend()
        self.put_at(at, value, length, order, is_reversed)

    def put_at(self, at, value, length, order, is_reversed=False):
        for bit in range(length):
            from_low = bit if order == "little-endian" else length - 1 - bit
            if is_reversed:
                from_low = length - 1 - from_low
            byte, offset = divmod(at + bit, 8)
            place = offset if order == "little-endian" else 7 - offset
            self.bytes[byte] = self.bytes[byte] & ~(1 << place) | (value >> from_low & 1) << place

    def put_bytes(self, data):
        self.align(8)
        self.bytes.extend(data)
        self.position += 8 * len(data)


class Maker:
    """The random choices of one trace."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # Of fields that may share a byte all have one order: others may not (§5.3.4).
        self.packed_order = self.random.choice(["little-endian", "big-endian"])
        # Finished fields that later scopes can depend on: origin, path, key.
        self.keys = []
        self.origin = None

    def once_in(self, times):
        return self.random.randrange(times) == 0

    def pick(self, *choices):
        return self.random.choice(choices)

    def value(self, low, high):
        """Often near an end of the range, or near zero."""
        pick = self.random.randrange(4)
        if pick == 0:
            return self.random.choice([low, high])
        if pick == 1:
            return min(max(self.random.randrange(-3, 16), low), high)
        return self.random.randint(low, high)

    def attributes(self, description):
        if self.once_in(8):
            description["attributes"] = {"example.org": {"any": [1, None, {"x": True}]}}
        return description


class Fixed:
    """Fixed-length bit arrays of all kinds. `kind` is the type's name behind `fixed-length-`."""

    def __init__(self, maker, kind, length=None):
        self.maker, self.kind = maker, kind
        lengths = [8, 16, 32, 64, maker.random.randint(1, 64), maker.random.randint(1, 64)]
        self.length = length or maker.random.choice(lengths)
        if kind == "floating-point-number":
            self.length = maker.pick(32, 64)
        self.alignment = maker.pick(1, 1, 8, 8, 16, 32, 64)
        self.order = maker.packed_order
        if self.length % 8 == 0 and self.alignment >= 8 and maker.once_in(2):
            self.order = maker.pick("little-endian", "big-endian")
        usual = "first-to-last" if self.order == "little-endian" else "last-to-first"
        self.bit_order = maker.pick(None, None, None, "first-to-last", "last-to-first")
        self.is_reversed = self.bit_order not in (None, usual)
        self.labels, self.limits, self.last = {}, None, 0
        self.base = maker.pick(2, 8, 10, 10, 16)
        if self.length in (61, 62, 63) and self.base == 16:
            # babeltrace2 shifts by 64 for these, and prints 0x0 on x86.
            self.base = 10
        self.roles = None
        if self.is_integer() and maker.once_in(3):
            self.make_labels()
        if kind == "bit-map":
            for label in maker.random.sample(LABELS, maker.random.randint(1, 8)):
                ends = sorted(maker.random.randrange(self.length) for _ in range(2))
                self.labels[label] = [ends] if maker.once_in(2) else [[ends[0], ends[0]], ends]

    def is_integer(self):
        return self.kind.endswith("integer")

    def make_labels(self):
        low, high = self.range()
        for label in self.maker.random.sample(LABELS, self.maker.random.randint(1, 16)):
            count = self.maker.random.randint(1, 3)
            self.labels[label] = [sorted((self.maker.value(low, high), self.maker.value(low, high)))
                                  for _ in range(count)]

    def range(self):
        if self.kind == "signed-integer":
            return -(1 << (self.length - 1)), (1 << (self.length - 1)) - 1
        return 0, (1 << self.length) - 1

    def describe(self):
        made = {"type": "fixed-length-" + self.kind, "length": self.length,
                "byte-order": self.order}
        if self.alignment != 1 or self.maker.once_in(2):
            made["alignment"] = self.alignment
        if self.bit_order:
            made["bit-order"] = self.bit_order
        if self.is_integer() and (self.base != 10 or self.maker.once_in(2)):
            made["preferred-display-base"] = self.base
        if self.labels:
            made["flags" if self.kind == "bit-map" else "mappings"] = self.labels
        if self.roles:
            made["roles"] = self.roles
        return self.maker.attributes(made)

    def choose(self):
        low, high = self.range()
        if self.limits is not None:
            return self.maker.random.choice(self.limits)
        if self.is_integer() and self.labels and not self.maker.once_in(3):
            return self.maker.random.choice(
                self.maker.random.choice(self.maker.random.choice(list(self.labels.values()))))
        return self.maker.value(low, high)

    def encode(self, bits):
        if self.kind == "floating-point-number":
            value = int.from_bytes(as_float(self.maker.random.choice(REALS), self.length), "big")
        else:
            value = self.last = self.choose()
        bits.align(self.alignment)
        self.place = bits.position
        bits.put(value & (1 << self.length) - 1, self.length, self.order, self.is_reversed)


def as_float(value, length):
    import struct
    return struct.pack(">f" if length == 32 else ">d", value)


class Variable:
    """LEB128."""

    def __init__(self, maker, signed=None):
        self.maker = maker
        self.signed = maker.once_in(2) if signed is None else signed
        self.kind = "signed-integer" if self.signed else "unsigned-integer"
        self.base = maker.pick(2, 8, 10, 10, 16)
        # babeltrace2 2.1 shows those of base 2 with 64 digits, as any other of 64 bits.
        self.labels, self.limits, self.last, self.roles = {}, None, 0, None
        if maker.once_in(3):
            Fixed.make_labels(self)

    def range(self):
        return (-(1 << 63), (1 << 63) - 1) if self.signed else (0, (1 << 64) - 1)

    def is_integer(self):
        return True

    def describe(self):
        made = {"type": "variable-length-" + self.kind, "preferred-display-base": self.base}
        if self.labels:
            made["mappings"] = self.labels
        if self.roles:
            made["roles"] = self.roles
        return self.maker.attributes(made)

    def encode(self, bits):
        self.last = rest = Fixed.choose(self)
        data = bytearray()
        while True:
            low, rest = rest & 0x7F, rest >> 7
            is_last = rest == (-1 if self.signed and low & 0x40 else 0)
            if is_last and not (self.signed and rest == 0 and low & 0x40):
                break
            data.append(low | 0x80)
        data.append(low)
        # Bytes more than needed are allowed.
        if not self.signed and self.maker.once_in(4) and len(data) < 9:
            data[-1] |= 0x80
            data.append(0)
        bits.put_bytes(data)


class Text:
    def __init__(self, maker, form, length=None):
        self.maker, self.form, self.length_key = maker, form, length
        self.encoding = maker.pick("utf-8", *ENCODINGS)
        self.unit = ENCODINGS[self.encoding]
        self.length = self.unit * maker.random.randrange(0, 12)

    def describe(self):
        made = {"type": self.form + "-string"}
        if self.encoding != "utf-8" or self.maker.once_in(2):
            made["encoding"] = self.encoding
        if self.form == "static-length":
            made["length"] = self.length
        if self.form == "dynamic-length":
            made["length-field-location"] = self.location
        return self.maker.attributes(made)

    def encode(self, bits):
        text = self.maker.random.choice(TEXTS)
        data = text.encode(self.encoding)
        if self.form == "null-terminated":
            bits.put_bytes(data + b"\0" * self.unit)
            return
        length = self.length if self.form == "static-length" else self.length_key.last
        length -= length % self.unit
        # Cut between characters.
        while len(data) > length:
            text = text[:-1]
            data = text.encode(self.encoding)
        whole = self.length if self.form == "static-length" else self.length_key.last
        bits.put_bytes(data + b"\0" * (whole - len(data)))


class Blob:
    def __init__(self, maker, length=None):
        self.maker, self.length_key = maker, length
        # babeltrace2 2.1 aborts on those of length 0 (bt_field_destroy(): Assertion `field`).
        self.length = maker.random.randrange(1, 20)

    def describe(self):
        made = {"type": "static-length-blob", "length": self.length}
        if self.length_key:
            made = {"type": "dynamic-length-blob", "length-field-location": self.location}
        if self.maker.once_in(2):
            made["media-type"] = "image/png"
        return self.maker.attributes(made)

    def encode(self, bits):
        length = self.length_key.last if self.length_key else self.length
        bits.put_bytes(bytes(self.maker.random.randrange(256) for _ in range(length)))


class Array:
    def __init__(self, maker, depth, length=None):
        self.maker, self.length_key = maker, length
        self.length = maker.random.randrange(0, 5)
        self.element = any_kind(maker, depth + 1)
        self.alignment = maker.pick(1, 1, 1, 8, 32)

    def describe(self):
        made = {"type": "static-length-array", "length": self.length}
        if self.length_key:
            made = {"type": "dynamic-length-array", "length-field-location": self.location}
        if self.alignment != 1:
            made["minimum-alignment"] = self.alignment
        made["element-field-class"] = self.element.describe()
        return self.maker.attributes(made)

    def encode(self, bits):
        length = self.length_key.last if self.length_key else self.length
        bits.align(max(self.alignment, alignment_of(self.element)))
        for _ in range(length):
            self.element.encode(bits)


class Choice:
    """Optionals and variants."""

    def __init__(self, maker, depth, is_variant):
        self.maker, self.is_variant = maker, is_variant
        count = maker.random.randint(1, 4) if is_variant else 1
        self.options = [any_kind(maker, depth + 1) for _ in range(count)]
        self.names = maker.random.sample(NAMES, count)
        if not is_variant and maker.once_in(2):
            self.key, self.ranges = Fixed(maker, "boolean"), None
            return
        self.key = integer_key(maker, signed=maker.once_in(2))
        low = -30 if self.key.kind == "signed-integer" else 0
        self.ranges = [[[low + 20 * at, low + 20 * at + 3], [low + 20 * at + 7] * 2]
                       for at in range(count)]
        self.key.limits = [value for ranges in self.ranges for pair in ranges for value in pair]
        if not is_variant:
            self.key.limits += [low + 5, low + 60]

    def describe(self):
        made = {"selector-field-location": self.location}
        if self.is_variant:
            made["type"] = "variant"
            made["options"] = []
            for name, option, ranges in zip(self.names, self.options, self.ranges):
                option = {"field-class": option.describe(), "selector-field-ranges": ranges}
                if not self.maker.once_in(3):
                    option["name"] = name
                made["options"].append(self.maker.attributes(option))
        else:
            made["type"] = "optional"
            made["field-class"] = self.options[0].describe()
            if self.ranges:
                made["selector-field-ranges"] = self.ranges[0]
        return self.maker.attributes(made)

    def encode(self, bits):
        if self.ranges is None:
            if self.key.last:
                self.options[0].encode(bits)
            return
        for option, ranges in zip(self.options, self.ranges):
            if any(first <= self.key.last <= last for first, last in ranges):
                option.encode(bits)


def integer_key(maker, signed=False):
    """An integer that another field depends on."""
    if maker.once_in(4):
        return Variable(maker, signed)
    kind = "signed-integer" if signed else "unsigned-integer"
    return Fixed(maker, kind, maker.pick(8, 16, 32, 64, 11, 9))


class Structure:
    """Members; what another one depends on stands before it, in this or a structure around it, or
    in a scope before."""

    def __init__(self, maker, depth, count=None, may_depend=True, around=()):
        self.maker = maker
        self.alignment = maker.pick(1, 1, 1, 8, 16, 64)
        self.members = []
        self.names = maker.random.sample(NAMES, len(NAMES))
        for _ in range(maker.random.randrange(7) if count is None else count):
            self.add(any_member(self, depth, may_depend, (*around, self)))

    def add(self, kind, name=None):
        name = name or self.names.pop()
        self.members.append((name, kind))
        return name

    def describe(self):
        made = {"type": "structure"}
        if self.members or self.maker.once_in(2):
            made["member-classes"] = [
                self.maker.attributes({"name": name, "field-class": kind.describe()})
                for name, kind in self.members]
        if self.alignment != 1:
            made["minimum-alignment"] = self.alignment
        return self.maker.attributes(made)

    def encode(self, bits):
        bits.align(alignment_of(self))
        for _, kind in self.members:
            kind.encode(bits)


def alignment_of(kind):
    if isinstance(kind, Fixed):
        return kind.alignment
    if isinstance(kind, (Variable, Text, Blob)):
        return 8
    if isinstance(kind, Array):
        return max(kind.alignment, alignment_of(kind.element))
    if isinstance(kind, Structure):
        return max([kind.alignment, *(alignment_of(member) for _, member in kind.members)])
    return 1


def any_kind(maker, depth):
    """What depends on nothing."""
    if depth < DEPTH_MAX and maker.once_in(4):
        # An empty one is no element: babeltrace2 2.1 stops at arrays of what has no bits.
        return Structure(maker, depth + 1, maker.random.randint(1, 4), may_depend=False)
    if depth < DEPTH_MAX and maker.once_in(5):
        return Array(maker, depth)
    return maker.random.choice([
        lambda: Fixed(maker, maker.pick("unsigned-integer", "signed-integer")),
        lambda: Fixed(maker, maker.pick("unsigned-integer", "signed-integer")),
        lambda: Fixed(maker, maker.pick("bit-array", "boolean", "bit-map")),
        lambda: Fixed(maker, "floating-point-number"),
        lambda: Variable(maker),
        lambda: Text(maker, maker.pick("null-terminated", "static-length")),
        lambda: Blob(maker),
    ])()


def any_member(structure, depth, may_depend, around):
    maker = structure.maker
    if may_depend and depth < DEPTH_MAX and maker.once_in(3):
        return depending(structure, depth, around)
    if may_depend and depth < DEPTH_MAX and maker.once_in(5):
        return NestedLater(maker, depth, around)
    return any_kind(maker, depth)


class NestedLater(Structure):
    """A structure in which fields may depend on those of the structures around it."""

    def __init__(self, maker, depth, around):
        super().__init__(maker, depth + 1, around=around)


def depending(structure, depth, around):
    """A field that depends on another, which is added to `structure` if there is none."""
    maker = structure.maker
    what = maker.random.randrange(5)
    if what >= 3:
        kind = Choice(maker, depth, is_variant=what == 4)
        path = locate(maker, structure.add(kind.key), around)
        kind.location = path
        return kind
    if maker.keys and what == 0 and maker.once_in(2):
        origin, path, key = maker.random.choice(maker.keys)
        location = {"origin": origin, "path": path}
    else:
        key = integer_key(maker)
        key.limits = [0, 1, 2, 4, 8]
        if len(around) > 1 and maker.once_in(2):
            # A member of the structure around, two steps up: before the one that this is in.
            location = {"path": [None, around[-2].add(key)]}
        else:
            location = locate(maker, structure.add(key), around)
    kind = [lambda: Array(maker, depth, key), lambda: Text(maker, "dynamic-length", key),
            lambda: Blob(maker, key)][what]()
    kind.location = location
    if isinstance(kind, Text) and kind.unit > 1:
        # Lengths are in bytes; these are whole characters.
        key.limits = [0, 4, 8, 16, 40]
    return kind


def locate(maker, name, around):
    """Where the member `name` of the innermost structure is, seen from its neighbour."""
    if len(around) == 1 and maker.once_in(2):
        return {"origin": maker.origin, "path": [name]}
    return {"path": [name] if not maker.once_in(4) else ["nowhere", None, name]}


def scope(maker, origin, count=None):
    """A scope's structure."""
    maker.origin = origin
    made = Structure(maker, 0, count)
    maker.keys += [(origin, [name], kind) for name, kind in made.members
                   if isinstance(kind, (Fixed, Variable)) and kind.limits == [0, 1, 2, 4, 8]]
    return made


def role(maker, length, *roles):
    made = Fixed(maker, "unsigned-integer", length)
    made.labels, made.roles = {}, list(roles)
    made.alignment = max(made.alignment, 8)
    return made


class Stream:
    """A data stream class, and what its streams do."""

    def __init__(self, maker, number, clock):
        self.maker, self.number, self.clock = maker, number, clock
        maker.keys = []
        self.context = scope(maker, "packet-context", None if maker.once_in(2) else 0)
        add = self.context.add
        self.total, self.content = (role(maker, 64, "packet-total-length"),
                                    role(maker, 64, "packet-content-length"))
        add(self.total, "the total")
        add(self.content, "the content")
        self.begin = self.end = self.discarded = self.sequence = None
        if clock:
            # Without it babeltrace2 2.1 aborts, where there is a clock and a packet context
            # (bt_message_packet_beginning_create_with_default_clock_snapshot(): precondition).
            self.begin = role(maker, 64, "default-clock-timestamp")
            add(self.begin, "the begin")
            # Without it babeltrace2 2.1 aborts where something was lost.
            if not maker.once_in(4):
                self.end = role(maker, 64, "packet-end-default-clock-timestamp")
                add(self.end, "the end")
        if maker.once_in(2) and (self.end or not clock):
            self.discarded = role(maker, 64, "discarded-event-record-counter-snapshot")
            add(self.discarded, "the discarded")
        if maker.once_in(2) and (self.end or not clock):
            self.sequence = role(maker, 64, "packet-sequence-number")
            add(self.sequence, "the sequence")
        # As elsewhere, what packet contexts hold is not for other scopes: babeltrace2 2.1 keeps
        # no way to fields that might have a role.
        self.header = Structure(maker, 0, 0)
        self.id = role(maker, 16, "event-record-class-id")
        if maker.once_in(3):
            self.id = Variable(maker, False)
            self.id.labels, self.id.roles = {}, ["event-record-class-id"]
        self.header.add(self.id, "the id")
        self.time = None
        if clock:
            # None of variable length: babeltrace2 2.1 takes its bits for none, and ors them to the
            # time before.
            self.time = role(maker, maker.pick(64, 64, 32, 27), "default-clock-timestamp")
            self.header.add(self.time, "the time")
        if maker.once_in(3):
            self.header.add(any_kind(maker, 1))
        self.common = (scope(maker, "event-record-common-context") if maker.once_in(2) else None)
        keys = list(maker.keys)
        self.events = []
        for _ in range(maker.random.randint(1, 5)):
            maker.keys = list(keys)
            specific = (scope(maker, "event-record-specific-context") if maker.once_in(2) else None)
            payload = None if maker.once_in(6) else scope(maker, "event-record-payload")
            self.events.append((specific, payload))

    def describe(self):
        made = {"type": "data-stream-class", "id": self.number,
                "packet-context-field-class": self.context.describe(),
                "event-record-header-field-class": self.header.describe()}
        if self.clock:
            made["default-clock-class-id"] = self.clock
        if self.common:
            made["event-record-common-context-field-class"] = self.common.describe()
        yield self.maker.attributes(made)
        for number, (specific, payload) in enumerate(self.events):
            made = {"type": "event-record-class", "id": number,
                    "data-stream-class-id": self.number}
            if not self.maker.once_in(5):
                made["name"] = self.maker.random.choice(NAMES)
            if self.maker.once_in(3):
                made["namespace"] = "example.org"
            for space in ("babeltrace.org,2020", "lttng.org,2009"):
                if self.maker.once_in(3):
                    level = {"log-level": self.maker.random.choice(LEVELS)}
                    if self.maker.once_in(3):
                        level["emf-uri"] = "http://example.org/" + space
                    made.setdefault("attributes", {})[space] = level
            if specific:
                made["specific-context-field-class"] = specific.describe()
            if payload:
                made["payload-field-class"] = payload.describe()
            yield made

    def packets(self, header):
        """The bytes of a stream. Times go on from packet to packet."""
        maker = self.maker
        whole, now = bytearray(), maker.random.randrange(1 << 20)
        discarded, sequence = maker.random.randrange(5), maker.random.randrange(5)
        for _ in range(maker.random.randint(1, 4)):
            bits = Bits()
            header.encode(bits)
            begin = now
            set_limits = [(self.begin, begin), (self.discarded, discarded),
                          (self.sequence, sequence)]
            for field, value in set_limits:
                if field:
                    field.limits = [value]
            for field in (self.total, self.content, self.end):
                if field:
                    field.limits = [0]
            self.context.encode(bits)
            for _ in range(maker.random.randrange(12)):
                number = maker.random.randrange(len(self.events))
                specific, payload = self.events[number]
                self.id.limits = [number]
                if self.time:
                    now += maker.pick(0, 1, 5, 1000, 1 << 20)
                    self.time.limits = [now % (1 << self.time.length)]
                for part in (self.header, self.common, specific, payload):
                    if part:
                        part.encode(bits)
            content = bits.position
            bits.align(8)
            bits.put_bytes(b"\xff" * maker.pick(0, 0, 3, 8))
            sizes = [(self.content, content), (self.total, bits.position), (self.end, now)]
            for field, value in sizes:
                if field:
                    bits.put_at(field.place, value, 64, field.order, field.is_reversed)
            whole += bits.bytes
            now += maker.random.randrange(1 << 16)
            discarded += maker.pick(0, 0, 1, 7)
            sequence += maker.pick(1, 1, 1, 3)
        return whole


def write(folder, seed):
    maker = Maker(seed)
    os.makedirs(folder)
    fragments = [{"type": "preamble", "version": 2}]
    identity = uuid.UUID(int=maker.random.getrandbits(128))
    if maker.once_in(2):
        fragments[0]["uuid"] = list(identity.bytes)
    trace = {"type": "trace-class"}
    if maker.once_in(2):
        trace["environment"] = {"hostname": "here", "vpid": 77, "huge": (1 << 64) - 1,
                                "procname": "prog", "domain": "ust"}
    for name, value in (("namespace", "example.org"), ("name", "t"), ("uid", "u1")):
        if maker.once_in(2):
            trace[name] = value
    header = Structure(maker, 0, 0)
    header.alignment = 8
    magic = role(maker, 32, "packet-magic-number")
    magic.alignment, magic.limits, magic.is_reversed, magic.bit_order = 8, [MAGIC], False, None
    header.add(magic, "magic")
    if "uuid" in fragments[0]:
        header.add(Uuid(identity), "uuid")
    class_id, stream_id = (role(maker, maker.pick(8, 16, 64), "data-stream-class-id"),
                           role(maker, 64, "data-stream-id"))
    header.add(class_id, "class")
    header.add(stream_id, "stream")
    trace["packet-header-field-class"] = header.describe()
    clock = None
    if not maker.once_in(6):
        clock = "the clock"
        made = {"type": "clock-class", "id": clock,
                "frequency": maker.pick(1000000000, 1000, 3000000, 123456789)}
        if maker.once_in(2):
            made["origin"] = "unix-epoch"
        if maker.once_in(2):
            made["offset-from-origin"] = {"seconds": maker.pick(1234567890, 0, 5), "cycles": 17}
        if maker.once_in(2):
            made["name"] = "a clock"
        fragments.append(made)
    # A clock class may stand on either side of it.
    fragments.insert(maker.random.randint(1, len(fragments)), trace)
    # babeltrace2 refuses streams with and without a clock together.
    streams = [Stream(maker, number, clock) for number in range(maker.random.randint(1, 3))]
    for stream in streams:
        fragments += stream.describe()
    with open(os.path.join(folder, "metadata"), "w", encoding="utf-8") as out:
        for fragment in fragments:
            indent = maker.pick(None, 1)
            out.write("\x1e" + json.dumps(fragment, indent=indent, ensure_ascii=False) + "\n")
    for stream in streams:
        for number in range(maker.random.randint(1, 2)):
            class_id.limits, stream_id.limits = [stream.number], [number]
            name = "s{}_{}".format(stream.number, number)
            with open(os.path.join(folder, name), "wb") as out:
                out.write(stream.packets(header))


class Uuid:
    """The metadata's UUID in packet headers."""

    def __init__(self, identity):
        self.bytes = identity.bytes

    def describe(self):
        return {"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}

    def encode(self, bits):
        bits.put_bytes(self.bytes)


def main():
    folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        write(os.path.join(folder, str(seed)), seed)


main()
