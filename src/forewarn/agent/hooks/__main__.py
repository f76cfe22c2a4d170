"""`python -I -m forewarn.agent.hooks KIND`: runs a built-in hook once.

Prints what the hook did. Exits with 0, with 1 if it failed, or with 2 if it was called wrongly.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import msgspec

from forewarn.agent.hooks import KINDS, contract, stages_of
from forewarn.support.text import listing, visible


def main(argv: list[str]) -> int:
    try:
        for line in _run(argv):
            _print(line)
    except contract.Failure as failure:
        _print(str(failure))
        return 2 if isinstance(failure, contract.Misused) else 1
    except OSError as error:  # about a file, mostly, whose name is not a secret
        _print(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1
    except Exception as error:  # its text may contain anything, even a secret
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        _print(f"bug in forewarn: {type(error).__name__} in {where.filename}:{where.lineno}")
        return 1
    return 0


def _run(argv: list[str]) -> list[str]:
    if len(argv) != 1 or argv[0] not in KINDS:
        raise contract.Misused(f"expected one kind of hook: {listing(sorted(KINDS))}")
    [kind] = argv
    raw = os.environ.get("FOREWARN_OPTIONS") or "{}"
    try:
        options = msgspec.json.decode(raw, type=KINDS[kind].options)
    except msgspec.MsgspecError as error:
        raise contract.Misused(f"FOREWARN_OPTIONS are not valid for {kind}: {error}") from None
    run = contract.read_run()
    if run.call.stage not in stages_of(kind, options):
        return [f"nothing to do at {run.call.stage}"]
    lines: list[str] = import_module(f"forewarn.agent.hooks.{kind}").act(run, options)
    return lines


def _print(line: str) -> None:
    sys.stdout.write(visible(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
