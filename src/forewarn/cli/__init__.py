"""The command line. Packages of the server are imported only by commands that need them."""

from __future__ import annotations

import codecs
import errno
import os
import sys

INTERRUPTED = 130  # exit code after Ctrl-C
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# What is printed where a terminal's encoding lacks a character; others become \uXXXX.
SYMBOLS = {"✓": "+", "✗": "x", "…": "...", "→": "->", "×": "x", "·": "-", "─": "-"}
UNUSABLE_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES)  # not even stat works


def main() -> None:
    open_standard_streams()
    replace_unencodable_characters()
    try:
        from forewarn.cli import completion
        from forewarn.cli.app import app

        completion.prepare()
        app(prog_name="forewarn")
    except KeyboardInterrupt:  # before the command could handle it
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno in UNUSABLE_PATH and error.filename is not None:
            sys.exit(f"forewarn: {os.fsdecode(error.filename)}: {error.strerror}")
        if error.errno not in FULL or error.filename is not None:
            raise
        _fail_to_write(error)
    except RuntimeError as error:
        if not str(error).startswith("Symlink loop"):  # from Path.resolve, before Python 3.13
            raise
        sys.exit(f"forewarn: {error}")


def open_standard_streams() -> None:
    """Open /dev/null in place of each standard stream that was closed when we were started.

    This has to happen before anything else is opened: a new file gets the lowest free descriptor,
    so a state file or a guest's connection could become standard error and receive the log.
    Programs that we start or exec inherit these streams."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, which is fd
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115


def replace_unencodable_characters() -> None:
    """Print a similar character where the encoding of standard output or error has none, instead
    of failing in the middle of the output."""
    codecs.register_error("forewarn.symbols", _symbols)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", "") == "strict":
            stream.reconfigure(errors="forewarn.symbols")  # type: ignore[union-attr]


def _symbols(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    escape = "".join(SYMBOLS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text)
    return escape, error.end


def _fail_to_write(error: OSError) -> None:
    """Report that standard output could not be written, for example to a full disk."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python's flush at exit succeeds
        sys.stderr.write(f"forewarn: cannot write the output: {error.strerror}\n")
    except OSError:
        pass
    sys.exit(1)


if __name__ == "__main__":
    main()
