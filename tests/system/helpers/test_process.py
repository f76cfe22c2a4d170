"""What a process has written to one pipe is there when what it wrote later to the other is read."""

from __future__ import annotations

import subprocess
import sys

from helpers.process import Running

ROUNDS = 2_000
WRITES = f"""
import os
for number in range({ROUNDS}):
    os.write(2, b"before %d\\n" % number)
    os.write(1, b"line %d\\n" % number)
os.write(2, b"terminal\\r\\nunfinished")
"""


def test_standard_error_is_read_up_to_each_line_of_standard_output() -> None:
    argv = [sys.executable, "-I", "-S", "-c", WRITES]
    pipe = subprocess.PIPE
    running = Running(subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True), argv)
    for number in range(ROUNDS):
        assert running.line() == f"line {number}"
        assert f"before {number}\n" in running.stderr[number:]
    assert running.wait() == 0
    assert running.stderr[ROUNDS:] == ["terminal\n", "unfinished"]
