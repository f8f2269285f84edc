#!/usr/bin/env python3
"""Draws trace.svg from a trace of trace.c:

    cc -O2 -pthread -I ../../include trace.c -o shop
    sudo trackway record -o shop-trace --kernel 'sched_switch,syscalls' -- ./shop
    trackway print --format json shop-trace | ./trace.py > trace.svg
"""

import json
import sys

WIDTH, LEFT, RIGHT = 960, 104, 16
LANE, TOP = 116, 40
CPU_COLOURS = {0: "#4c8fd0", 1: "#e0973f"}


def text(x, y, string, size=12, anchor="start", colour="#222", family="sans-serif"):
    escaped = string.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    print(
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}" font-family="{family}">{escaped}</text>'
    )


def box(x, y, width, height, colour):
    print(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>')


def line(x1, y1, x2, y2, colour, width=1):
    print(
        f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )


def thread_of(event):
    return event["context"].get("vtid", event["context"].get("tid"))


events = [json.loads(row) for row in sys.stdin]
user = [event for event in events if event["name"].startswith("shop:")]
threads = sorted({thread_of(event) for event in user})
begin = user[0]["time"] - 20_000
end = user[-1]["time"] + 45_000


def place(time):
    time = min(max(time, begin), end)
    return LEFT + (time - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)


def running(thread):
    """Spans of time in which the thread was on a CPU."""
    since, cpu = begin, None
    for event in events:
        if event["name"] == "sched_switch":
            if event["fields"]["next_tid"] == thread:
                since, cpu = event["time"], event["packet"]["cpu_id"]
            if event["fields"]["prev_tid"] == thread:
                yield since, event["time"], event["packet"]["cpu_id"]
                cpu = None
    if cpu is not None:
        yield since, end, cpu


def calls(thread):
    """System calls of the thread: name, entry, exit."""
    entry = None
    for event in events:
        if event["context"].get("tid") == thread and "vtid" not in event["context"]:
            if event["name"].startswith("syscall_entry_"):
                entry = event
            elif event["name"].startswith("syscall_exit_") and entry:
                yield entry["name"].removeprefix("syscall_entry_"), entry["time"], event["time"]
                entry = None


height = TOP + LANE * len(threads) + 30
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">')
print("<title>Two threads of a program: its events, system calls and CPUs on one clock</title>")
box(0, 0, WIDTH, height, "#ffffff")
text(LEFT, 20, "events of the program", 12, colour="#b3261e")
text(LEFT + 150, 20, "system calls", 12, colour="#555")
for index, (cpu, colour) in enumerate(CPU_COLOURS.items()):
    box(LEFT + 250 + index * 90, 10, 12, 12, colour)
    text(LEFT + 267 + index * 90, 20, f"on CPU {cpu}")
text(LEFT + 440, 20, "blank: off the CPU", 12, colour="#555")

for lane, thread in enumerate(threads):
    top = TOP + lane * LANE
    text(8, top + 61, f"thread {thread}", 12)
    line(LEFT, top + 56, WIDTH - RIGHT, top + 56, "#ccc")
    for first, last, cpu in running(thread):
        if last > begin and first < end:
            box(place(first), top + 48, max(place(last) - place(first), 1), 16, CPU_COLOURS[cpu])
    own = [event for event in user if thread_of(event) == thread]
    label_ends = LEFT
    for name, first, last in calls(thread):
        if begin < last and first < end:
            x = place(first)
            box(x, top + 67, max(place(last) - x, 1.5), 9, "#777")
            if first < own[-1]["time"]:
                x = max(x, label_ends)
                text(x, top + 89, name, 11, colour="#555")
                label_ends = x + 7 * len(name)
    label_ends = [0, 0]
    for event in own:
        x = place(event["time"])
        fields = ", ".join(
            json.dumps(value) if isinstance(value, str) else str(value)
            for value in event["fields"].values()
        )
        label = f'{event["name"].removeprefix("shop:")}({fields})'
        row = 0 if x >= label_ends[0] else 1
        line(x, top + 12 + row * 15, x, top + 64, "#b3261e", 1.5)
        text(x + 4, top + 22 + row * 15, label, 12, colour="#b3261e", family="monospace")
        label_ends[row] = x + 4 + 7.4 * len(label)

axis = TOP + LANE * len(threads)
line(LEFT, axis, WIDTH - RIGHT, axis, "#222")
step = 50_000
for tick in range(0, end - begin + 1, step):
    x = place(begin + tick)
    line(x, axis, x, axis + 5, "#222")
    text(x, axis + 18, f"{tick // 1000} µs", 11, "middle")
print("</svg>")
