"""A leader that stands still while a program of its driver runs: the program is ended before
another control node runs its own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from helpers.control_nodes import ask, control_process, new_state
from helpers.serve_process import FLEET
from helpers.waiting import until

# Performs twice: the first time for ever, and the second time it writes whether the first one runs.
PROGRAM = """\
#!/bin/sh
log=$1
case $2 in
check) exit 0 ;;
observe) exit 20 ;;
esac
if [ ! -s "$log" ]; then
    echo $$ > "$log"
    exec sleep 600
fi
# A process that has ended, and of which a parent that stands still does not know, has no words.
grep -q . "/proc/$(head -n 1 "$log")/cmdline" && how=twice || how=once
echo $how >> "$log"
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_program_ends_with_the_lease_of_its_leader(
    tmp_path: Path, number: signal.Signals
) -> None:
    program, log = tmp_path / "program", tmp_path / "log"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    words = f'program = ["{program}", "{log}"]'
    driver = f'driver = "command"\n[command]\nrepeatable = true\n{words}\n'
    url = new_state()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(control_process(tmp_path / "c1", "c1", url, driver))
        until(first.leads)
        assert ask(first.control, "PUT", "/v1/fleet", FLEET.encode()).status == 200
        second = stack.enter_context(control_process(tmp_path / "c2", "c2", url, driver))
        assert ask(first.control, "POST", "/v1/machines/web-0/restart").status < 300
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        first.running.process.send_signal(number)
        until(second.leads)
        until(lambda: len(log.read_text().splitlines()) > 1)
        assert log.read_text().splitlines()[1:] == ["once"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.running.process.pid, signal.SIGCONT)
