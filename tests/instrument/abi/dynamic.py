# SPDX-License-Identifier: MIT OR Apache-2.0
"""A binding in sixty lines: events described by a Python program, through ctypes alone."""
import ctypes
import sys


class Field(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("labels", ctypes.c_void_p),
                ("scalar", ctypes.c_uint8), ("shape", ctypes.c_uint8),
                ("length", ctypes.c_uint16), ("reserved", ctypes.c_uint32)]


class As(ctypes.Union):
    _fields_ = [("i", ctypes.c_int64), ("u", ctypes.c_uint64), ("f32", ctypes.c_float),
                ("f64", ctypes.c_double), ("data", ctypes.c_char_p)]


class Value(ctypes.Structure):
    _fields_ = [("value", As), ("length", ctypes.c_uint64)]


I64, F64, SCALAR, TEXT = 4, 14, 0, 2
TYPES = {int: (I64, SCALAR), float: (F64, SCALAR), str: (0, TEXT)}


def find_library():
    process = ctypes.CDLL(None)
    if hasattr(process, "trackway_dynamic_describe"):
        return process
    try:
        return ctypes.CDLL("libtrackway.so.1")
    except OSError:
        return None


LIBRARY = find_library()


class Event:
    def __init__(self, provider, name, **fields):
        self.types = list(fields.values())
        self.handle = ctypes.c_void_p()
        described = [Field(key.encode(), None, *TYPES[kind], 0, 0) for key, kind in fields.items()]
        array = (Field * len(described))(*described)
        if LIBRARY:
            LIBRARY.trackway_dynamic_describe(provider.encode(), name.encode(), 6, array,
                                              len(described), ctypes.byref(self.handle))

    def __call__(self, *values):
        if not LIBRARY or not LIBRARY.trackway_dynamic_enabled(self.handle):
            return
        packed = (Value * len(values))()
        for place, kind, value in zip(packed, self.types, values):
            if kind is str:
                data = value.encode()
                place.value.data, place.length = data, len(data)
            elif kind is float:
                place.value.f64 = value
            else:
                place.value.i = value
        result = LIBRARY.trackway_dynamic_record(self.handle, packed, len(values))
        if result:
            print("refused", result)


request = Event("python", "request", path=str, status=int, seconds=float)
tick = Event("python", "tick")
for number in range(int(sys.argv[1])):
    request(f"/päge/{number}", 200 + number, number / 4)
    tick()
