"""`agent check`: does the agent have everything that it will need? One finding for each thing.

Asks the endpoint for this machine's identity; runs no hook and changes nothing. Files, programs and
addresses of this machine are checked by `machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from forewarn.agent.check import machine
from forewarn.agent.config.model import Config, Hook, Rule
from forewarn.agent.config.read import ConfigError, read
from forewarn.agent.config.rules import missing_labels
from forewarn.agent.hooks import KINDS
from forewarn.client import Client, ClientError
from forewarn.client.identity import Identity
from forewarn.support import guard
from forewarn.support.finding import Finding, note, ok, problem
from forewarn.support.text import SECOND, counted, in_words, listing

TIMEOUT = 20.0  # seconds for the endpoint to answer a request
LONG_POLL = 1.0  # seconds for which a long-poll is tried
POLLS = 3  # within which it shows whether the endpoint offers long-polls
CLOCK_DIFFERENCE = 5.0  # seconds that this machine's clock may differ from the endpoint's


def findings(path: Path) -> Iterator[Finding]:
    try:
        config = read(path)
    except ConfigError as error:
        yield from (problem("configuration", message) for message in error.problems)
        return
    count = f"{counted(len(config.rules), 'rule')}, {counted(len(config.hooks), 'hook')}"
    yield ok("configuration", f"{path}: {count}")
    yield from (note("configuration", message) for message in config.warnings)
    yield from machine.check_file(path)
    yield from machine.check_user()
    yield from machine.check_state(config.state)
    if config.shared is not None:
        yield from machine.check_shared(config.shared)
    yield from machine.check_listen(config)
    for hook in config.hooks.values():
        yield from _check_hook(hook)
    yield from _check_endpoint(config)


def _check_hook(hook: Hook) -> Iterator[Finding]:
    about = f"hook {hook.name}"
    problems: list[str] = []
    if hook.kind:
        kind = KINDS[hook.kind]
        problems = kind.check(msgspec.convert(hook.options, kind.options))
    else:
        for stage, words in hook.commands.items():
            problems += [f"{stage}: {message}" for message in machine.program_problems(words[0])]
    yield from (problem(about, message) for message in problems)
    if not problems:
        what = hook.kind or ", ".join(hook.commands)
        retries = f"retried {hook.retries} times" if hook.retries else "not retried"
        yield ok(about, f"{what}; {_span(hook.timeout)} each, {retries}")
    if "prepare" in hook.commands and "undo" not in hook.commands:
        yield note(about, "has no undo: what it prepares stays in place after the event")


# The endpoint, and what depends on it


def _check_endpoint(config: Config) -> Iterator[Finding]:
    try:
        with Client(config.endpoint) as client:
            client.events(timeout=TIMEOUT)
            for polls, _ in enumerate(client.snapshots(lambda: LONG_POLL), 1):
                if client.status.long_poll or polls >= POLLS:
                    break
            status = client.status
            mode = "long-polls" if status.long_poll else "polled every second"
            yield ok("endpoint", f"{status.endpoint}, version {status.version}, {mode}")
            yield _check_clock(client.now().timestamp() - guard.wall_us() / 1e6)
            identity = client.identity(timeout=TIMEOUT)
    except ClientError as error:
        yield problem("endpoint", str(error))
        yield from (ok(f"rule {rule.name}", _describe(rule)) for rule in config.rules)
        return
    yield _describe_identity(identity)
    for rule in config.rules:
        yield ok(f"rule {rule.name}", _describe(rule))
        if missing := missing_labels(rule, dict(identity.tags)):
            message = f"never matches on this machine, which does not have {listing(missing)}"
            yield note(f"rule {rule.name}", message)
    yield from _check_approval(config, forewarn=status.long_poll)


def _check_clock(difference: float) -> Finding:
    if abs(difference) < CLOCK_DIFFERENCE:
        return ok("clock", f"within {_span(CLOCK_DIFFERENCE)} of the endpoint's")
    direction = "behind" if difference > 0 else "ahead of"
    return note(
        "clock",
        f"{_span(abs(difference))} {direction} the endpoint's; the agent goes by the endpoint's"
        " clock, but the times in this machine's logs differ",
    )


def _describe_identity(identity: Identity) -> Finding:
    tags = listing([f"{key}={value}" for key, value in identity.tags]) if identity.tags else "none"
    of = f" of scale set {identity.scale_set}" if identity.scale_set else ""
    return ok("identity", f"{identity.name}{of}; labels: {tags}")


def _describe(rule: Rule) -> str:
    what = " or ".join(rule.type) or "every event"
    machines = {"mine": "this machine", "peer": "other machines", "any": "any machine"}
    durations = ""
    if rule.min_duration is not None:
        durations += f", at least {_span(rule.min_duration)} long"
    if rule.max_duration is not None:
        durations += f", at most {_span(rule.max_duration)} long"
    source = f" from {' or '.join(rule.source)}" if rule.source else ""
    hooks = ", then ".join(rule.hooks) or "nothing"
    when = "at once" if rule.lead is None else f"{_span(rule.lead)} before NotBefore"
    return (
        f"{what}{source} for {machines[rule.machine]}{durations}: {hooks}, {when};"
        f" approve {rule.approve}"
    )


def _check_approval(config: Config, *, forewarn: bool) -> Iterator[Finding]:
    """An endpoint with long-polls is forewarn's, which also has `/ready`."""
    rules: dict[str, list[str]] = {"coordinated": [], "when-done": []}
    for rule in config.rules:
        rules.setdefault(rule.approve, []).append(rule.name)
    if coordinated := rules["coordinated"]:
        if config.shared is not None or forewarn:
            through = "the endpoint" if forewarn else f"{config.shared}"
            yield ok("approval", f"machines report through {through} that they are ready")
        else:
            yield problem(
                "approval",
                f"coordinated ({listing(coordinated)}), but this endpoint has no /ready, through"
                " which machines report that they are ready: set [agent] shared to a directory that"
                " the machines share, or use another approve",
            )
    if alone := rules["when-done"]:
        yield note(
            "approval",
            f"when-done ({listing(alone)}) approves for every machine of an event as soon as this"
            " one is done; where events list several machines, coordinated waits for all of them",
        )


def _span(seconds: float) -> str:
    return in_words(round(seconds * SECOND))
