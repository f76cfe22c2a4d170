"""The hook `systemd`: stops units before an event, and starts those that were running after it.

It uses `systemctl`, which works for root and for users that polkit permits to do so.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec

from forewarn.agent.hooks.contract import FOREVER, Failure, Run
from forewarn.agent.hooks.options import Systemd, seconds
from forewarn.support import guard

TIMEOUT = 10.0  # seconds for a request that the manager answers at once
_RUNNING = {"active", "activating", "reloading", "refreshing"}
_PROPERTIES = ("Id", "LoadState", "ActiveState", "Result")
_POLKIT = ("/usr/lib/polkit-1/polkitd", "/usr/libexec/polkitd", "/usr/libexec/polkit-1/polkitd")


class Late(Failure):
    """systemctl did not finish in time; what it requested may still be done."""


class SavedUnits(msgspec.Struct, frozen=True):
    active: list[str]  # before our change, in the order in which they are started


def act(run: Run, options: Systemd) -> list[str]:
    until = run.at_most(FOREVER if options.timeout is None else seconds(options.timeout))
    action = _stop if run.call.stage == "prepare" else _restore
    return action(run, options, until)


def check(options: Systemd) -> list[str]:
    try:
        units = _units(options, options.names(), guard.monotonic() + TIMEOUT)
    except Failure as failure:
        return [str(failure)]
    problems = [text for unit in options.names() if (text := _unit_problem(unit, units[unit]))]
    root = os.name != "posix" or os.geteuid() == 0
    if options.scope == "system" and not root and not any(map(Path.exists, map(Path, _POLKIT))):
        problems.append(
            "only root can stop units here: install polkit and a rule for this user"
            ' (see "Hooks" in the documentation)'
        )
    return problems


def _stop(run: Run, options: Systemd, until: float) -> list[str]:
    names = options.names()
    units = _units(options, names, until)
    if problems := [text for unit in names if (text := _unit_problem(unit, units[unit]))]:
        raise Failure("nothing was stopped: " + "; ".join(problems))
    saved = run.load("systemd", SavedUnits)
    if saved is None:  # else an earlier attempt has saved what was running then
        saved = SavedUnits([unit for unit in names if units[unit]["ActiveState"] in _RUNNING])
        run.save("systemd", saved)
    lines = []
    for unit in reversed(names):
        if units[unit]["ActiveState"] in _RUNNING | {"deactivating"}:
            lines += [f"stopped {unit}", *_run_job(options, "stop", unit, until)]
        else:
            stopped = unit in saved.active
            state = "is already stopped" if stopped else "is not running and is not changed"
            lines.append(f"{unit} {state}")
    return lines


def _restore(run: Run, options: Systemd, until: float) -> list[str]:
    saved = run.load("systemd", SavedUnits)
    if saved is None:
        return ["nothing was stopped, so nothing is started"]
    lines, problems = [], []
    for unit in saved.active:
        try:
            lines += [f"started {unit}", *_run_job(options, "start", unit, until)]
        except Failure as failure:  # the others are started nevertheless
            problems.append(str(failure))
    if problems:
        raise Failure("; ".join([*problems, *lines]))
    run.forget("systemd")
    return lines or ["nothing was running, so nothing is started"]


def _unit_problem(unit: str, properties: dict[str, str]) -> str:
    """Return why a unit cannot be stopped and started again; empty if it can."""
    match properties["LoadState"]:
        case "loaded":
            return ""
        case "not-found":
            return f"there is no unit {unit}; `systemctl list-unit-files` lists the units"
        case "masked":
            return f"{unit} is masked and could not be started again; systemctl unmask {unit}"
        case state:
            return f"{unit} cannot be loaded ({state}); `systemctl status {unit}` says why"


def _units(options: Systemd, names: list[str], until: float) -> dict[str, dict[str, str]]:
    """Return the properties of units, by their names."""
    arguments = ["show", f"--property={','.join(_PROPERTIES)}", "--", *names]
    ended = _systemctl(options, arguments, min(until, guard.monotonic() + TIMEOUT))
    if ended.returncode != 0:
        raise Failure(f"systemd does not answer: {_error_text(ended)}")
    blocks = ended.stdout.strip("\n").split("\n\n")
    units = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
    if len(units) != len(names) or not all(set(_PROPERTIES) <= set(unit) for unit in units):
        raise Failure("the output of systemctl is not as expected; is it systemd's?")
    return dict(zip(names, units, strict=True))


def _run_job(options: Systemd, verb: str, unit: str, until: float) -> list[str]:
    """Start or stop a unit and wait for it; return what systemctl printed."""
    try:
        ended = _systemctl(options, [verb, "--", unit], until)
    except Late:
        raise Failure(f"{verb} of {unit} is still in progress, but the time is up") from None
    if ended.returncode == 0:
        return [f"systemctl: {line}" for line in ended.stderr.splitlines()]
    text = _error_text(ended)
    if "uthenti" in text or "enied" in text:  # Interactive authentication required, Access denied
        text += ' (a user that is not root needs a polkit rule; see "Hooks" in the documentation)'
    elif verb == "start":
        result = _units(options, [unit], guard.monotonic() + TIMEOUT)[unit]["Result"]
        text = f"{result}; {text}" if result not in ("", "success") else text
    raise Failure(f"{unit} did not {verb}: {text}")


def _systemctl(
    options: Systemd, arguments: list[str], until: float
) -> subprocess.CompletedProcess[str]:
    argv = ["systemctl", f"--{options.scope}", "--no-pager", "--no-ask-password", *arguments]
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(0.1, until - guard.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Late("systemd does not answer in time") from None
    except FileNotFoundError:
        raise Failure("systemctl was not found: this hook needs systemd") from None


def _error_text(ended: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return " ".join(lines) or f"systemctl ended with {ended.returncode}"
