"""Random tracers, written by barectf: an oracle for `trackway print`.

Usage: barectf_generate.py FOLDER FIRST_SEED COUNT

For every seed a folder FOLDER/SEED, the same for the same seed: the C tracer and the metadata
that barectf makes of a random configuration, and `main.c`, which calls the tracer with random
values and writes its packets to files beside the metadata. Compile and run it there.
"""

import os
import pathlib
import random
import re
import sys
import uuid

import barectf
import yaml

TAG = "--- !<tag:barectf.org,2020/3/config>\n"
NAMES = ["a", "bb", "_c", "value", "len", "tag", "timestamp", "msg", "x_y", "count"]
# Never empty: babeltrace2 2.0.4 prints an empty string as the one that the field had before.
TEXTS = ["plain", "two words", "quo'te", "back\\\\slash", "tab\\tline\\n", "\\303\\274ml"]
BASES = ["binary", "octal", "decimal", "hexadecimal"]
# Events that a run of the tracer emits, and in how large packets, in bytes.
EVENTS = 60
PACKETS = [256, 512, 2048]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        # Lengths of static arrays, by the C name of their parameter.
        self.lengths = {}

    def once_in(self, times):
        return self.random.randrange(times) == 0

    def alignment(self, least=1):
        return self.random.choice([bits for bits in (1, 2, 4, 8, 16, 32, 64) if bits >= least])

    def integer(self):
        choose = self.random
        size = choose.choice([1, 3, 8, 11, 16, 24, 32, 33, 48, 60, 64])
        signed = self.once_in(2)
        made = {"class": ("signed" if signed else "unsigned") + "-integer", "size": size}
        if not self.once_in(3):
            made["alignment"] = self.alignment()
        made["preferred-display-base"] = choose.choice(BASES)
        if self.once_in(3):
            made["class"] = made["class"].replace("integer", "enumeration")
            low, high = (-(1 << size - 1), (1 << size - 1) - 1) if signed else (0, (1 << size) - 1)
            made["mappings"] = {}
            for label in choose.sample(["ON", "off", "two words", "a\"b", "_"], 2):
                ends = sorted(choose.choice([low, high, min(5, high), 0]) for _ in range(2))
                made["mappings"][label] = [ends, choose.choice([low, high])]
        return made

    def real(self):
        return {"class": "real", "size": self.random.choice([32, 64]), "alignment": 8}

    def element(self):
        kinds = [self.integer, self.integer, self.real, lambda: {"class": "string"}]
        return self.random.choice(kinds)()

    def field(self, parameter):
        pick = self.random.randrange(6)
        if pick == 0:
            # One for each name: parameters of several events are called alike.
            self.lengths.setdefault(parameter, self.random.randrange(1, 5))
            return {"class": "static-array", "length": self.lengths[parameter],
                    "element-field-type": self.element()}
        if pick == 1:
            return {"class": "dynamic-array", "element-field-type": self.element()}
        return self.element()

    def members(self, prefix, least=0):
        names = self.random.sample(NAMES, self.random.randrange(least, 5))
        return [{name: {"field-type": self.field(prefix + name)}} for name in names]

    def structure(self, prefix, least=0):
        made = {"class": "structure", "members": self.members(prefix, least)}
        if self.once_in(3):
            made["minimum-alignment"] = self.alignment()
        return made

    def feature(self, sizes):
        """The type of a field of packets or events that the tracer itself fills."""
        return {"class": "unsigned-integer", "size": self.random.choice(sizes),
                "alignment": self.alignment()}

    def stream(self, number, clock):
        choose = self.random
        counters = self.feature([32, 64])
        packet = {"total-size-field-type": self.feature([32, 64]),
                  "content-size-field-type": self.feature([32, 64]),
                  "discarded-event-records-counter-snapshot-field-type":
                      choose.choice([False, counters]),
                  "sequence-number-field-type": choose.choice([False, self.feature([32, 64])])}
        event = {"type-id-field-type": self.feature([3, 5, 8, 16, 64])}
        if clock is not None:
            # Both or none: babeltrace2 knows losses' time ranges by them.
            times = choose.choice([True, True, False])
            for edge in ("beginning", "end"):
                packet[edge + "-timestamp-field-type"] = self.feature([64]) if times else False
            event["timestamp-field-type"] = self.feature([14, 27, 32, 64])
        made = {"$features": {"packet": packet, "event-record": event}, "event-record-types": {}}
        if clock is not None:
            made["$default-clock-type-name"] = clock
        if self.once_in(2):
            made["packet-context-field-type-extra-members"] = self.members("pc_")
        if self.once_in(2):
            made["event-record-common-context-field-type"] = self.structure("cc_", 1)
        for event_number in range(choose.randrange(1, 5)):
            name = "s{}_event{}".format(number, event_number)
            record = {"payload-field-type": self.structure("p_", 1)}
            if self.once_in(2):
                record["log-level"] = choose.randrange(0, 15)
            if self.once_in(2):
                record["specific-context-field-type"] = self.scalars("sc_")
            made["event-record-types"][name] = record
        return made

    def scalars(self, prefix):
        """Without sequences: babeltrace2 2.0.4 aborts on one in an event's own context."""
        names = self.random.sample(NAMES, self.random.randrange(1, 4))
        return {"class": "structure",
                "members": [{name: {"field-type": self.element()}} for name in names]}

    def configuration(self):
        choose = self.random
        clocks = {}
        for number in range(choose.randrange(0, 3)):
            frequency = choose.choice([1_000_000_000, 1000, 32_768, 999_999_937])
            clocks["clock{}".format(number)] = {
                "frequency": frequency, "precision": choose.randrange(10),
                "offset": {"seconds": choose.choice([0, 1_795_228_670]),
                           "cycles": choose.randrange(frequency)},
                "origin-is-unix-epoch": True, "$c-type": "uint64_t"}
        streams = {}
        names = choose.sample(sorted(clocks), len(clocks)) or [None]
        for number in range(choose.randrange(1, 3)):
            # All have a clock or none: babeltrace2 refuses to mix them.
            streams["stream{}".format(number)] = self.stream(number, choose.choice(names))
        features = {"magic-field-type": self.once_in(2), "uuid-field-type": self.once_in(2),
                    "data-stream-type-id-field-type": self.feature([8, 16, 32])}
        trace_type = {"native-byte-order": "little-endian", "$features": features,
                      "uuid": str(uuid.UUID(int=choose.getrandbits(128))),
                      "clock-types": clocks, "data-stream-types": streams}
        environment = {"hostname": "bare", "vpid": 12, "procname": "p"}
        kept = {name: value for name, value in environment.items() if self.once_in(2)}
        return {"trace": {"environment": kept, "type": trace_type}}


class Program:
    """`main.c`: what a tracer's user writes."""

    def __init__(self, maker, configuration, header):
        self.random = maker.random
        self.lengths = maker.lengths
        self.clocks = configuration["trace"]["type"]["clock-types"]
        self.streams = configuration["trace"]["type"]["data-stream-types"]
        self.header = header
        self.numbered = 0

    def parameters(self, function):
        """Types and names of a function's parameters but the first, as the header declares it."""
        declared = re.search(r"void {}\((.*?)\);".format(function), self.header, re.S).group(1)
        for parameter in declared.split(",")[1:]:
            kind, name = re.match(r"\s*(.*?)(\w+)\s*$", parameter, re.S).groups()
            yield kind.strip(), name

    def value(self, kind):
        if "char" in kind:
            return '"{}"'.format(self.random.choice(TEXTS))
        if "double" in kind or "float" in kind:
            return self.random.choice(["0.0", "-1.5", "1e10", "0.1", "123456.0"])
        bits = int(re.search(r"int(\d+)_t", kind).group(1))
        value = self.random.choice([0, 1, 5, (1 << bits) - 1, self.random.getrandbits(bits)])
        return "({}) 0x{:x}ULL".format(re.search(r"u?int\d+_t", kind).group(0), value)

    def call(self, function, first):
        """Statements that call a function with random arguments."""
        before, arguments, length = [], [first], 0
        for kind, name in self.parameters(function):
            text = re.sub(r"\s", "", kind)
            is_array = text.endswith("const*") or (text.endswith("*") and "char" not in text)
            if re.search(r"___\w+_len$", name):
                length = self.random.randrange(0, 4)
                arguments.append(str(length))
            elif is_array:
                count = length if self.is_dynamic(function, name) else self.lengths[name]
                element = re.sub(r"\*\s*$", "", kind).strip()
                values = ", ".join(self.value(kind) for _ in range(count)) or "0"
                self.numbered += 1
                variable = "values{}".format(self.numbered)
                before.append("{} {}[] = {{{}}};".format(element, variable, values))
                arguments.append(variable)
            else:
                arguments.append(self.value(kind))
        return "{{ {} {}({}); }}".format(" ".join(before), function, ", ".join(arguments))

    def is_dynamic(self, function, name):
        prefix, field = name.split("_", 1)
        length = "{}___{}_len".format(prefix, field)
        return any(length == other for _, other in self.parameters(function))

    def text(self):
        streams = list(self.streams)
        lines = ["#include <stdio.h>", "#include <stdlib.h>", '#include "barectf.h"',
                 "static uint64_t now = 5;", "static int full;"]
        for clock in self.clocks:
            lines.append("static uint64_t {0}(void *data) {{ (void) data; return now; }}".format(clock))
        lines.append("static int is_full(void *data) { (void) data; return full; }")
        for stream in streams:
            opened = self.call("barectf_{}_open_packet".format(stream), "&{}".format(stream))
            lines += [
                "static struct barectf_{0}_ctx {0};".format(stream),
                "static FILE *{}_file;".format(stream),
                "static void {}_open(void *data) {{ (void) data; {} }}".format(stream, opened),
                "static void {}_close(void *data) {{".format(stream),
                "    (void) data; barectf_{0}_close_packet(&{0});".format(stream),
                "    fwrite(barectf_packet_buf(&{0}), 1, barectf_packet_buf_size(&{0}), {0}_file);".format(stream),
                "}"]
        lines.append("int main(void) {")
        for stream in streams:
            size = self.random.choice(PACKETS)
            clocks = "".join(".{0}_clock_get_value = {0}, ".format(clock) for clock in self.clocks
                             if "{}_clock_get_value".format(clock) in self.header)
            lines += [
                "    {0}_file = fopen(\"trace/{0}\", \"w\");".format(stream),
                "    struct barectf_platform_callbacks {0}_calls = {{ {1}.is_backend_full = is_full,"
                " .open_packet = {0}_open, .close_packet = {0}_close }};".format(stream, clocks),
                "    barectf_init(&{0}, malloc({1}), {1}, {0}_calls, NULL);".format(stream, size),
                "    {}_open(NULL);".format(stream)]
        for _ in range(EVENTS):
            stream = self.random.choice(streams)
            event = self.random.choice(list(self.streams[stream]["event-record-types"]))
            lines.append("    now += {}; full = {};".format(
                self.random.choice([0, 0, 1, 100, 9000]), int(self.random.random() < 0.1)))
            lines.append("    " + self.call("barectf_{}_trace_{}".format(stream, event),
                                            "&{}".format(stream)))
        for stream in streams:
            lines.append("    if (barectf_packet_is_open(&{0}) && !barectf_packet_is_empty(&{0})) "
                         "{0}_close(NULL);".format(stream))
            lines.append("    fclose({}_file);".format(stream))
        return "\n".join(lines + ["    return 0;", "}", ""])


def write(folder, seed):
    maker = Maker(seed)
    configuration = maker.configuration()
    os.makedirs(os.path.join(folder, "trace"))
    path = os.path.join(folder, "config.yaml")
    with open(path, "w") as file:
        file.write(TAG + yaml.safe_dump(configuration, sort_keys=False))
    with open(path) as file:
        generator = barectf.CodeGenerator(barectf.configuration_from_file(file))
    files = {file.name: file for file in [*generator.generate_c_headers(),
                                          *generator.generate_c_sources()]}
    for name, file in files.items():
        pathlib.Path(folder, name).write_text(file.contents)
    metadata = generator.generate_metadata_stream()
    pathlib.Path(folder, "trace", metadata.name).write_text(metadata.contents)
    program = Program(maker, configuration, files["barectf.h"].contents)
    pathlib.Path(folder, "main.c").write_text(program.text())


def main():
    folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        write(os.path.join(folder, str(seed)), seed)


main()
