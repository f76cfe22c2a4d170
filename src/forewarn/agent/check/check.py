"""`agent check`: is everything there that the agent will need? One finding for each thing.

Looks, and asks the endpoint who this machine is; runs no hook and changes nothing. What is wrong
with files, programs and addresses of this machine is found by `machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from pathlib import Path

import msgspec

from forewarn.agent.check import machine
from forewarn.agent.check.finding import Finding, note, ok, problem
from forewarn.agent.config.model import Config, Hook, Rule
from forewarn.agent.config.read import ConfigError, read
from forewarn.agent.hooks import KINDS
from forewarn.client import Client, ClientError
from forewarn.client.identity import Identity
from forewarn.support import guard
from forewarn.support.text import SECOND, in_words, listing

PATIENCE = 20.0  # seconds for the endpoint to answer a question
WAITED = 1.0  # seconds for which a long-poll is tried
LOOKS = 3  # in which it is found out whether one is offered
APART = 5.0  # seconds between the clocks that nobody need know of


def findings(path: Path) -> Iterator[Finding]:
    try:
        config = read(path)
    except ConfigError as error:
        yield from (problem("configuration", says) for says in error.problems)
        return
    count = f"{_counted(config.rules, 'rule')}, {_counted(config.hooks, 'hook')}"
    yield ok("configuration", f"{path}: {count}")
    yield from (note("configuration", says) for says in config.warnings)
    yield from machine.file(path)
    yield from machine.user()
    yield from machine.state(config.state)
    if config.shared is not None:
        yield from machine.shared(config.shared)
    yield from machine.listening(config)
    for hook in config.hooks.values():
        yield from _hook(hook)
    yield from _endpoint(config)


def _hook(hook: Hook) -> Iterator[Finding]:
    about = f"hook {hook.name}"
    wrong: list[str] = []
    if hook.kind:
        kind = KINDS[hook.kind]
        wrong = kind.check(msgspec.convert(hook.options, kind.options))
    else:
        for stage, words in hook.commands.items():
            wrong += [f"{stage}: {says}" for says in machine.program(words[0])]
    yield from (problem(about, says) for says in wrong)
    if not wrong:
        what = hook.kind or ", ".join(hook.commands)
        tries = f"retried {hook.retries} times" if hook.retries else "not retried"
        yield ok(about, f"{what}; {_span(hook.timeout)} each, {tries}")
    if "prepare" in hook.commands and "undo" not in hook.commands:
        yield note(about, "has no undo: what it prepares stays so after the event")


# The endpoint, and what depends on it


def _endpoint(config: Config) -> Iterator[Finding]:
    try:
        with Client(config.endpoint) as client:
            client.events(patience=PATIENCE)
            for seen, _ in enumerate(client.looks(lambda: WAITED), 1):
                if client.standing.long_poll or seen >= LOOKS:
                    break
            stands = client.standing
            way = "tells of changes" if stands.long_poll else "is asked every second"
            yield ok("endpoint", f"{stands.endpoint}, version {stands.version}, {way}")
            yield _clocks(client.now().timestamp() - guard.wall_us() / 1e6)
            identity = client.identity(patience=PATIENCE)
    except ClientError as error:
        yield problem("endpoint", str(error))
        yield from (ok(f"rule {rule.name}", _rule(rule)) for rule in config.rules)
        return
    yield _identity(identity)
    for rule in config.rules:
        yield ok(f"rule {rule.name}", _rule(rule))
        yield from _suits(rule, identity)
    yield from _approval(config, stands.long_poll)


def _clocks(apart: float) -> Finding:
    if abs(apart) < APART:
        return ok("clock", f"within {_span(APART)} of the endpoint's")
    way = "behind" if apart > 0 else "ahead of"
    return note(
        "clock",
        f"{_span(abs(apart))} {way} the endpoint's; the agent goes by the endpoint's, but the times"
        " in this machine's logs are others",
    )


def _identity(identity: Identity) -> Finding:
    tags = listing([f"{key}={value}" for key, value in identity.tags]) if identity.tags else "none"
    of = f" of scale set {identity.scale_set}" if identity.scale_set else ""
    return ok("identity", f"{identity.name}{of}; labels: {tags}")


def _rule(rule: Rule) -> str:
    what = " or ".join(rule.type) or "every event"
    whose = {"mine": "of this machine", "peer": "of others", "any": "of any machine"}[rule.machine]
    lasting = ""
    if rule.min_duration is not None:
        lasting += f", at least {_span(rule.min_duration)} long"
    if rule.max_duration is not None:
        lasting += f", at most {_span(rule.max_duration)} long"
    source = f" from {' or '.join(rule.source)}" if rule.source else ""
    hooks = ", then ".join(rule.hooks) or "nothing"
    when = "at once" if rule.lead is None else f"{_span(rule.lead)} before NotBefore"
    return f"{what}{source} {whose}{lasting}: {hooks}, {when}; approve {rule.approve}"


def _suits(rule: Rule, identity: Identity) -> Iterator[Finding]:
    tags = dict(identity.tags)
    missing = [f"{key}={value}" for key, value in rule.labels.items() if tags.get(key) != value]
    if missing:
        says = f"never matches on this machine, which is not labelled {listing(missing)}"
        yield note(f"rule {rule.name}", says)


def _approval(config: Config, forewarn: bool) -> Iterator[Finding]:
    """An endpoint that tells of changes is forewarn's, and also passes on who is ready."""
    named = {way: [rule.name for rule in config.rules if rule.approve == way]
             for way in ("coordinated", "when-done")}  # fmt: skip
    if together := named["coordinated"]:
        if config.shared is not None or forewarn:
            by = "the endpoint" if forewarn else f"{config.shared}"
            yield ok("approval", f"machines tell each other by {by} that they are ready")
        else:
            yield problem(
                "approval",
                f"coordinated ({listing(together)}), but this endpoint does not let machines tell"
                " each other that they are ready: name a directory that they share ([agent]"
                " shared), or approve another way",
            )
    if alone := named["when-done"]:
        yield note(
            "approval",
            f"when-done ({listing(alone)}) approves for every machine of an event as soon as this"
            " one is done; where events list several, coordinated waits for all of them",
        )


def _counted(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _span(seconds: float) -> str:
    return in_words(round(seconds * SECOND))
