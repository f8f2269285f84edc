"""Random traces, written by babeltrace2's own CTF sink: an oracle for `trackway print`.

Usage: bt2_generate.py FOLDER FIRST_SEED COUNT

For every seed a trace FOLDER/SEED, the same for the same seed: a source component makes up
classes of everything that CTF 1.8 can say of a field and that the sink writes, then messages of
several streams; `sink.ctf.fs` writes them. Needs Debian's python3-bt2.

What babeltrace2 2.0.4 itself reads wrongly is left out here, each with its reason, so that the
comparison need not be loosened anywhere.
"""

import os
import random
import sys
import uuid

import bt2

# Words that TSDL reserves, names that differ by an underscore only, and ordinary ones.
NAMES = ["event", "struct", "integer", "string", "__x", "x", "timestamp", "id", "v", "len",
         "value", "stream_id", "Name", "a_long_name_of_a_field_that_goes_on", "n"]
KEYWORDS = ["event", "struct", "integer", "string"]
# Behind a letter that the sink writes as "\\xNN", babeltrace2 2.0.4 takes a third hexadecimal digit:
# no such letter stands there.
LABELS = ["zero", "one", "two words", "quote\"d", "back\\slash", "new\nline", "ünïsönü", "_under",
          "int", "A", "tab\tbed", "many"]
TEXTS = ["plain", "two words", "quote \" and '", "back\\slash \\n", "line\nfeed\ttab\rreturn",
         "\x01\x07\x08\x0b\x0c\x1b\x7f", "ünïcödé ☃ 𝄞", "%s %d %%", "}, { x = 1 }", "x" * 300]
REALS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-7, 123456789.125, 1e15, 1e16, 1e22, -1e300, 5e-324,
         float("inf"), float("-inf"), float("nan"), 3.4028234663852886e38, 2.5, 1e5, 1e6, 999999.5]
BASES = [bt2.IntegerDisplayBase.BINARY, bt2.IntegerDisplayBase.OCTAL,
         bt2.IntegerDisplayBase.DECIMAL, bt2.IntegerDisplayBase.HEXADECIMAL]
# In bits. The sink aborts on 24, 40, 48 and 56.
SIZES = [bits for bits in range(1, 65) if bits % 8 != 0 or bits in (8, 16, 32, 64)]
DEPTH_MAX = 3


def signed_limits(bits):
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


class Maker:
    """The random choices of one trace."""

    def __init__(self, seed, trace_class):
        self.random = random.Random(seed)
        self.trace_class = trace_class
        self.may_depend = True

    def once_in(self, times):
        return self.random.randrange(times) == 0

    def integer_value(self, low, high):
        """Often near an end of the range, or near zero."""
        pick = self.random.randrange(4)
        if pick == 0:
            return self.random.choice([low, high])
        if pick == 1:
            return min(max(self.random.randrange(-3, 12), low), high)
        return self.random.randint(low, high)


class Integer:
    """An integer, perhaps with labels; `last` is its latest value, for those that depend on it."""

    def __init__(self, maker, signed=None, limits=None, enumeration=None):
        choose = maker.random
        self.maker = maker
        self.signed = choose.random() < 0.5 if signed is None else signed
        self.bits = choose.choice([8, 16, 32, 64, 64, *[choose.choice(SIZES) for _ in range(3)]])
        self.ranges = {}
        self.only_labelled = False
        self.enumeration = maker.once_in(3) if enumeration is None else enumeration
        self.limits = limits
        if limits is not None:
            self.bits = max(self.bits, 8)
        self.last = 0
        low, high = self.range()
        if self.enumeration:
            for label in choose.sample(LABELS, choose.randrange(1, 6)):
                ends = [sorted((self.near(low, high), self.near(low, high)))
                        for _ in range(choose.randrange(1, 4))]
                self.ranges[label] = [tuple(pair) for pair in ends]

    def near(self, low, high):
        return self.maker.integer_value(low, high)

    def range(self):
        return signed_limits(self.bits) if self.signed else (0, (1 << self.bits) - 1)

    def make(self):
        classes = self.maker.trace_class
        base = self.maker.random.choice(BASES)
        if self.bits in (61, 62, 63) and base == bt2.IntegerDisplayBase.HEXADECIMAL:
            # babeltrace2 2.0.4 shifts by 64 for these, and prints 0x0 on x86.
            base = bt2.IntegerDisplayBase.DECIMAL
        if self.enumeration:
            make = (classes.create_signed_enumeration_field_class if self.signed
                    else classes.create_unsigned_enumeration_field_class)
            sets = bt2.SignedIntegerRangeSet if self.signed else bt2.UnsignedIntegerRangeSet
            made = make(field_value_range=self.bits, preferred_display_base=base)
            for label, ranges in self.ranges.items():
                made.add_mapping(label, sets(ranges))
        else:
            make = (classes.create_signed_integer_field_class if self.signed
                    else classes.create_unsigned_integer_field_class)
            made = make(field_value_range=self.bits, preferred_display_base=base)
        self.made = made
        return made

    def fill(self, field):
        low, high = self.range()
        if self.limits is not None:
            self.last = self.maker.random.choice(self.limits)
        elif self.ranges and (self.only_labelled or not self.maker.once_in(3)):
            label = self.maker.random.choice(list(self.ranges))
            first, last = self.maker.random.choice(self.ranges[label])
            self.last = self.maker.random.choice([first, last])
        else:
            self.last = self.maker.integer_value(low, high)
        field.value = self.last


class Bool:
    def __init__(self, maker):
        self.maker = maker
        self.last = False

    def make(self):
        self.made = self.maker.trace_class.create_bool_field_class()
        return self.made

    def fill(self, field):
        self.last = self.maker.random.random() < 0.5
        field.value = self.last


class BitArray:
    def __init__(self, maker):
        self.maker = maker
        # Shown in hexadecimal: see Integer.make().
        self.bits = maker.random.choice([bits for bits in SIZES if bits not in (61, 62, 63)])

    def make(self):
        return self.maker.trace_class.create_bit_array_field_class(self.bits)

    def fill(self, field):
        field.value_as_integer = self.maker.random.getrandbits(self.bits)


class Real:
    def __init__(self, maker):
        self.maker = maker
        self.double = maker.random.random() < 0.5

    def make(self):
        classes = self.maker.trace_class
        if self.double:
            return classes.create_double_precision_real_field_class()
        return classes.create_single_precision_real_field_class()

    def fill(self, field):
        value = self.maker.random.choice(REALS)
        if not self.double and abs(value) > 3.5e38 and value not in (float("inf"), float("-inf")):
            value = -7.25
        field.value = value


class Text:
    """Never empty: babeltrace2 2.0.4 prints an empty string as the one that the field had before
    (bt_field_string_clear() sets its length and leaves its bytes)."""

    def __init__(self, maker):
        self.maker = maker

    def make(self):
        return self.maker.trace_class.create_string_field_class()

    def fill(self, field):
        field.value = self.maker.random.choice(TEXTS)


class Array:
    def __init__(self, maker, depth, dynamic=True):
        self.maker = maker
        self.dynamic = dynamic
        self.length_kind = None
        self.element = any_kind(maker, depth + 1)
        # Before an array without elements the sink does not align, readers do (so says TSDL).
        element_packed = isinstance(self.element, (Integer, BitArray)) and self.element.bits % 8 != 0
        self.length = maker.random.randrange(0 if element_packed else 1, 6)

    def make(self):
        classes = self.maker.trace_class
        element = self.element.make()
        if not self.dynamic:
            return classes.create_static_array_field_class(element, self.length)
        if self.length_kind is None:
            return classes.create_dynamic_array_field_class(element)
        return classes.create_dynamic_array_field_class(element, length_fc=self.length_kind.made)

    def fill(self, field):
        if self.dynamic:
            known = self.length_kind is not None
            field.length = self.length_kind.last if known else self.maker.random.randrange(0, 5)
        for index in range(len(field)):
            self.element.fill(field[index])


class Structure:
    """Members; those that another one depends on stand before it."""

    def __init__(self, maker, depth, members_max=6):
        self.maker = maker
        self.members = []
        names = maker.random.sample(NAMES, len(NAMES))
        for _ in range(maker.random.randrange(members_max + 1)):
            kind = member_kind(maker, depth + 1)
            on = depends_on(maker, kind)
            if on is not None:
                self.members.append((names.pop(), on))
            self.members.append((names.pop(), kind))

    def make(self):
        made = self.maker.trace_class.create_structure_field_class()
        for name, kind in self.members:
            made.append_member(name, kind.make())
        return made

    def fill(self, field):
        for name, kind in self.members:
            kind.fill(field[name])


class Variant:
    """Its selector is an enumeration whose labels and ranges are the options': the sink of 2.0.4
    writes no other variants."""

    def __init__(self, maker, depth):
        self.maker = maker
        count = maker.random.randrange(1, 5)
        self.options = list(zip(maker.random.sample(NAMES, count),
                                [any_kind(maker, depth + 1) for _ in range(count)]))
        self.selector = Integer(maker, enumeration=True)
        self.selector.bits = max(self.selector.bits, 8)
        self.selector.ranges = {protected(name): self.ranges_of(index)
                                for index, (name, _) in enumerate(self.options)}
        self.selector.only_labelled = True

    def ranges_of(self, index):
        """Disjoint between options, several for an option."""
        low = index * 20 - (40 if self.selector.signed else 0)
        return [(low, low + 4), (low + 6, low + 6)]

    def make(self):
        kinds = [(name, kind.make()) for name, kind in self.options]
        made = self.maker.trace_class.create_variant_field_class(selector_fc=self.selector.made)
        sets = bt2.SignedIntegerRangeSet if self.selector.signed else bt2.UnsignedIntegerRangeSet
        for index, (name, kind) in enumerate(kinds):
            made.append_option(name, kind, sets(self.ranges_of(index)))
        return made

    def fill(self, field):
        index = next(index for index in range(len(self.options))
                     for first, last in self.ranges_of(index)
                     if first <= self.selector.last <= last)
        field.selected_option_index = index
        self.options[index][1].fill(field.selected_option)


def protected(name):
    """As the sink writes a name that TSDL would not take."""
    return "_" + name if name in KEYWORDS or name.startswith("_") else name


class Optional:
    def __init__(self, maker, depth):
        self.maker = maker
        self.content = any_kind(maker, depth + 1)
        self.selector = None
        self.reversed = maker.random.random() < 0.5

    def make(self):
        classes = self.maker.trace_class
        content = self.content.make()
        if self.selector is None:
            return classes.create_option_without_selector_field_class(content)
        return classes.create_option_with_bool_selector_field_class(
            content, self.selector.made, selector_is_reversed=self.reversed)

    def fill(self, field):
        if self.selector is None:
            there = self.maker.random.random() < 0.5
        else:
            there = self.selector.last != self.reversed
        field.has_field = there
        if there:
            self.content.fill(field.field)


def any_kind(maker, depth):
    simple = [Integer, Integer, Integer, Real, Text, Bool, BitArray]
    if depth >= DEPTH_MAX or maker.once_in(2):
        return maker.random.choice(simple)(maker)
    if maker.once_in(2):
        return Structure(maker, depth)
    return Array(maker, depth, dynamic=False)


def member_kind(maker, depth):
    """As any_kind(), or what TSDL ties to another member before it, which there must be room for:
    the sink refuses these as elements and options."""
    if maker.may_depend and depth < DEPTH_MAX and maker.once_in(4):
        return maker.random.choice([Variant, Optional, Array])(maker, depth)
    return any_kind(maker, depth)


def depends_on(maker, kind):
    """Another field that `kind` shall depend on, or None."""
    if isinstance(kind, Array) and kind.dynamic and maker.once_in(2):
        kind.length_kind = Integer(maker, signed=False, limits=[0, 1, 2, 5], enumeration=False)
        if kind.length_kind.bits % 8 != 0:
            # See Array.length.
            kind.length_kind.limits = [1, 2, 5]
        return kind.length_kind
    if isinstance(kind, Variant):
        return kind.selector
    if isinstance(kind, Optional) and maker.once_in(2):
        kind.selector = Bool(maker)
        return kind.selector
    return None


class StreamPlan:
    """A stream class and what its streams do."""

    def __init__(self, maker, component, number, clock):
        choose = maker.random
        self.maker = maker
        self.clock = clock
        self.packets = choose.random() < 0.8
        self.times = self.packets and clock is not None and choose.random() < 0.8
        self.loses_events = self.packets and choose.random() < 0.6
        self.loses_packets = self.packets and choose.random() < 0.5
        has_context = self.packets and maker.once_in(2)
        self.packet_context = Structure(maker, 1) if has_context else None
        self.common_context = Structure(maker, 1) if maker.once_in(2) else None
        self.classes = maker.trace_class.create_stream_class(
            name="class{}".format(number) if maker.once_in(2) else None,
            packet_context_field_class=made(self.packet_context),
            event_common_context_field_class=made(self.common_context),
            default_clock_class=clock,
            supports_packets=self.packets,
            packets_have_beginning_default_clock_snapshot=self.times,
            packets_have_end_default_clock_snapshot=self.times,
            supports_discarded_events=self.loses_events,
            discarded_events_have_default_clock_snapshots=self.loses_events and self.times,
            supports_discarded_packets=self.loses_packets,
            discarded_packets_have_default_clock_snapshots=self.loses_packets and self.times)
        self.events = []
        for event in range(choose.randrange(1, 5)):
            # babeltrace2 2.0.4 aborts on a sequence or a variant in an event's own context
            # (ctf-meta-update-value-storing-indexes.c:65: Assertion `tgt_fc` failed).
            maker.may_depend = False
            context = Structure(maker, 1) if maker.once_in(2) else None
            maker.may_depend = True
            payload = Structure(maker, 0, members_max=7) if not maker.once_in(6) else None
            level = choose.choice([None, *bt2_levels()])
            names = ["event{}".format(event), "app:event {}".format(event), "a\"b", None]
            event_class = self.classes.create_event_class(
                name=choose.choice(names), log_level=level,
                emf_uri="http://example.com/{}".format(event) if maker.once_in(3) else None,
                specific_context_field_class=made(context), payload_field_class=made(payload))
            self.events.append((event_class, context, payload))


def bt2_levels():
    return [bt2.EventClassLogLevel.EMERGENCY, bt2.EventClassLogLevel.WARNING,
            bt2.EventClassLogLevel.DEBUG_LINE, bt2.EventClassLogLevel.DEBUG]


def made(kind):
    return None if kind is None else kind.make()


def clock_class(maker, component, number, absolute):
    choose = maker.random
    frequency = choose.choice([1_000_000_000, 1_000_000_000, 1, 1000, 32_768, 2_399_998_123,
                               1_000_000])
    return component._create_clock_class(
        frequency=frequency, name="clock{}".format(number) if choose.random() < 0.8 else None,
        description="of \"quotes\"" if choose.random() < 0.3 else None,
        precision=choose.randrange(0, 1000),
        offset=bt2.ClockClassOffset(choose.choice([0, 1_795_228_670, -5]),
                                    choose.randrange(0, frequency)),
        origin_is_unix_epoch=absolute,
        uuid=uuid.UUID(int=choose.getrandbits(128)) if choose.random() < 0.8 else None)



class Iterator(bt2._UserMessageIterator):
    def __init__(self, config, port):
        self.messages = self._component.make_messages(self)

    def __next__(self):
        return next(self.messages)


class RandomSource(bt2._UserSourceComponent, message_iterator_class=Iterator):
    """One trace of a seed (`params`)."""

    def __init__(self, config, params, obj):
        self.seed = int(params["seed"])
        self._add_output_port("out")

    def make_messages(self, iterator):
        classes = self._create_trace_class()
        maker = Maker(self.seed, classes)
        choose = maker.random
        # babeltrace2 does not mix clocks that are not absolute, nor streams with and without one.
        kinds = choose.choice(["one", "one", "relative", "several", "none"])
        count = 3 if kinds == "several" else 1
        clocks = [clock_class(maker, self, number, kinds != "relative") for number in range(count)]
        plans = []
        for number in range(choose.randrange(1, 4)):
            clock = None if kinds == "none" else choose.choice(clocks)
            plans.append(StreamPlan(maker, self, number, clock))
        environment = {"hostname": "host \"q\"", "domain": "ust", "number": -5,
                       "procname": "p", "vpid": 77, "tracer_name": "made-up"}
        kept = {name: value for name, value in environment.items() if choose.random() < 0.5}
        trace = classes(name="trace", environment=kept,
                        uuid=uuid.UUID(int=choose.getrandbits(128)) if maker.once_in(2) else None)
        for plan in plans:
            for number in range(choose.randrange(1, 3)):
                name = "stream{}".format(number) if maker.once_in(2) else None
                yield from stream_messages(iterator, maker, plan,
                                           trace.create_stream(plan.classes, name=name))


def stream_messages(iterator, maker, plan, stream):
    choose = maker.random
    timed = plan.clock is not None
    now = choose.randrange(0, 5)
    yield iterator._create_stream_beginning_message(stream)
    for number in range(choose.randrange(1, 5) if plan.packets else 1):
        parent = stream
        lost_from = now
        now += choose.randrange(0, 3)
        if plan.packets:
            packet = parent = stream.create_packet()
            if plan.packet_context is not None:
                plan.packet_context.fill(packet.context_field)
        lost_events = plan.loses_events and number > 0 and maker.once_in(2)
        if plan.loses_packets and number > 0 and maker.once_in(3):
            span = (lost_from, now) if plan.times else (None, None)
            yield iterator._create_discarded_packets_message(
                stream, choose.randrange(1, 9), *span)
        end = now + choose.randrange(0, 1000)
        if lost_events and plan.times:
            yield iterator._create_discarded_events_message(
                stream, choose.randrange(1, 9), lost_from, end)
        if plan.packets:
            yield iterator._create_packet_beginning_message(packet, now if plan.times else None)
        if lost_events and not plan.times:
            yield iterator._create_discarded_events_message(stream, choose.randrange(1, 9))
        for _ in range(choose.randrange(0, 8)):
            now = min(now + choose.choice([0, 0, 1, 2, 50]), end)
            event_class, context, payload = choose.choice(plan.events)
            message = iterator._create_event_message(event_class, parent, now if timed else None)
            if plan.common_context is not None:
                plan.common_context.fill(message.event.common_context_field)
            if context is not None:
                context.fill(message.event.specific_context_field)
            if payload is not None:
                payload.fill(message.event.payload_field)
            yield message
        now = end
        if plan.packets:
            yield iterator._create_packet_end_message(packet, now if plan.times else None)
    yield iterator._create_stream_end_message(stream)


def write(folder, seed):
    graph = bt2.Graph()
    source = graph.add_component(RandomSource, "source", {"seed": seed})
    plugin = bt2.find_plugin("ctf")
    sink = graph.add_component(plugin.sink_component_classes["fs"], "sink",
                               {"path": folder, "assume-single-trace": True, "quiet": True},
                               logging_level=bt2.LoggingLevel.ERROR)
    graph.connect_ports(source.output_ports["out"], sink.input_ports["in"])
    graph.run()


def main():
    folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        try:
            write(os.path.join(folder, str(seed)), seed)
        except bt2._Error as error:
            print("seed {}: {}".format(seed, error), file=sys.stderr)
            sys.stderr.flush()
            # A sink that has failed may never come back from its destructor.
            os._exit(1)


main()
