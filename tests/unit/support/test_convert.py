"""Values are converted from any number of threads, also when a type is used for the first time."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from forewarn.support.convert import convert

# Threads that use a type for the first time, at the same moment; again and again with new types.
PROGRAM = """
import enum, sys, threading
import msgspec
from forewarn.support.convert import convert

sys.setswitchinterval(1e-6)
THREADS = 4


class Colour(enum.Enum):
    RED = "red"


def define():
    inner = msgspec.defstruct("Inner", [("colour", Colour), ("names", list[str])])
    return msgspec.defstruct("Outer", [("inner", list[inner]), ("more", dict[str, inner])])


def work(types, start):
    for type in types:
        start.wait()
        entry = {"colour": "red", "names": ["a"]}
        assert convert({"inner": [entry], "more": {"b": entry}}, type).inner[0].colour is Colour.RED


types, start = [define() for _ in range(200)], threading.Barrier(THREADS)
threads = [threading.Thread(target=work, args=(types, start)) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_threads_can_use_a_new_type_at_the_same_time() -> None:
    result = run(PROGRAM)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


class Point(msgspec.Struct):
    x: int


def test_a_value_is_converted_as_msgspec_does() -> None:
    assert convert({"x": 1}, Point) == Point(1)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        convert({"x": "one"}, Point)
    assert convert(Point(2), Point, from_attributes=True) == Point(2)
