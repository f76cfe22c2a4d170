"""A program that makes an enclosure and runs another in it, for users that a test is not.

`python enclosure_program.py HOST PORT NETWORK PROGRAM…` prints what it found and what the program
printed, as one JSON object. `as_nobody` and `without_rights` say how to be such a user.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

UID = 47_110  # nobody's
KILL_THE_KEEPER = "KILL-THE-KEEPER"  # in place of a program
PATIENCE = 300.0  # seconds after which a test has failed; no other module can be imported here
SOURCE = Path(__file__).parents[2] / "src"


def main(host: str, port: str, network: str, *argv: str) -> None:
    from forewarn.testing.enclosure import CannotEnclose, Enclosure

    try:
        with Enclosure((host, int(port)), network=network) as inside:
            if argv == (KILL_THE_KEEPER,):
                ended = _ended_with_the_keeper(inside._keeper)
                sys.stdout.write(json.dumps({"network": inside.network, "ended": ended}))
                return
            process = inside.popen(argv, stdout=subprocess.PIPE, text=True)
            output, _ = process.communicate()
            found = {"network": inside.network, "notes": inside.notes, "output": output}
            sys.stdout.write(json.dumps({**found, "code": process.returncode}))
    except CannotEnclose as error:
        sys.stdout.write(json.dumps({"refused": str(error)}))


def _ended_with_the_keeper(keeper: subprocess.Popen[bytes]) -> int:
    """How many processes there were beside it; all have ended when this returns."""
    pid = keeper.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    watched = [os.pidfd_open(int(child)) for child in children]
    keeper.kill()
    for pidfd in watched:
        if not select.select([pidfd], [], [], PATIENCE)[0]:
            raise SystemExit("somebody is left")
    return len(watched)


def as_nobody() -> list[str]:
    """Without a right, and as a user that owns nothing here."""
    ids = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    return [str(shutil.which("setpriv")), *ids, "--inh-caps=-all"]


def without_rights() -> list[str]:
    """As the same user, which is root, with nothing that makes it root. (Linux lets nobody be root
    in a user namespace who could not put rights on files: that one right stays.)"""
    return [str(shutil.which("setpriv")), "--bounding-set=-all,+setfcap", "--inh-caps=-all"]


@contextlib.contextmanager
def readable_by_others() -> Iterator[Path]:
    """A directory with this program, what it imports and a Python (`bin/python`), which every user
    may read: the project and our Python may lie where only their owner may go."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        packages = {"forewarn": SOURCE / "forewarn", "msgspec": Path(msgspec.__file__).parent}
        for package, source in packages.items():
            shutil.copytree(
                source,
                directory / package,
                ignore=shutil.ignore_patterns("__pycache__"),
                copy_function=shutil.copyfile,  # whatever the modes are in the project
            )
        shutil.copyfile(__file__, directory / Path(__file__).name)
        _copy_python(directory)
        for path in directory.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        yield directory


def _copy_python(directory: Path) -> None:
    """Copy the Python that runs the tests; it finds its modules by its own path."""
    libraries = directory / sys.platlibdir
    standard = Path(os.__file__).parent
    shutil.copytree(
        standard,
        libraries / standard.name,
        ignore=shutil.ignore_patterns("site-packages", "dist-packages", "test", "config-*"),
    )
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        shared = str(sysconfig.get_config_var("INSTSONAME"))
        if (standard.parent / shared).exists():  # else it is the system's
            shutil.copyfile(standard.parent / shared, libraries / shared)
    (directory / "bin").mkdir()
    shutil.copyfile(Path(sys._base_executable).resolve(), directory / "bin" / "python")  # type: ignore[attr-defined]


def enclose(
    prefix: list[str],
    python: str,
    *words: str,
    path: str | None = None,
    directory: Path | None = None,
) -> Any:
    """What this program reports when it is run with the prefix; from the project, or from a
    directory of `readable_by_others`."""
    packages = [path for path in site.getsitepackages() if "site-packages" in path]
    imported = [str(SOURCE), *packages] if directory is None else [str(directory)]
    program = Path(__file__) if directory is None else directory / Path(__file__).name
    env = {
        "PATH": os.environ["PATH"] if path is None else path,
        "PYTHONPATH": os.pathsep.join(imported),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if directory is not None:
        env["LD_LIBRARY_PATH"] = str(directory / sys.platlibdir)
    argv = [*prefix, python, "-P", str(program), *words]
    ran = subprocess.run(
        argv, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
