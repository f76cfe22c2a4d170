"""`python -I -m forewarn.agent.hooks KIND`: one run of a ready-made hook.

Prints what it did. Ends with 0, with 1 if it could not be done, with 2 if it was not asked right.
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
        for line in _acted(argv):
            _say(line)
    except contract.Failure as failure:
        _say(str(failure))
        return 2 if isinstance(failure, contract.Misused) else 1
    except OSError as error:  # of a file, mostly; its name is no secret
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1
    except Exception as error:  # whose text may have anything in it, also a secret
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        _say(f"a fault of forewarn's: {type(error).__name__} in {where.filename}:{where.lineno}")
        return 1
    return 0


def _acted(argv: list[str]) -> list[str]:
    if len(argv) != 1 or argv[0] not in KINDS:
        raise contract.Misused(f"name one kind of {listing(sorted(KINDS))}")
    [kind] = argv
    said = os.environ.get("FOREWARN_OPTIONS") or "{}"
    try:
        options = msgspec.json.decode(said, type=KINDS[kind].options)
    except msgspec.MsgspecError as error:
        raise contract.Misused(f"FOREWARN_OPTIONS are not those of {kind}: {error}") from None
    run = contract.received()
    if run.call.stage not in stages_of(kind, options):
        return [f"nothing to do at {run.call.stage}"]
    lines: list[str] = import_module(f"forewarn.agent.hooks.{kind}").act(run, options)
    return lines


def _say(line: str) -> None:
    sys.stdout.write(visible(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
