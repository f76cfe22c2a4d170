"""`forewarn run`: a program that knows nothing of us, as one of the machines.

What it needs is `testing.enclosure`'s. Here the service is found, and the program is stood in for:
signals that are meant for it reach it, and its end is ours.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlsplit

import typer

from forewarn.cli.output import Url, fail, notes, say, service
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.support.instants import from_datetime
from forewarn.testing.enclosure.messages import Network

if TYPE_CHECKING:
    from forewarn.testing.enclosure import FakeTime

NOT_RUN = 125  # exit codes as env and docker have them: it was not even tried,
CANNOT_RUN = 126  # it was found and cannot be run,
NOT_FOUND = 127  # there is no such program
CONNECT_WITHIN = 5.0  # seconds for the service to take a connection
PASSED_ON = frozenset(
    {
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)

_BY_KERNEL = 0x80  # SI_KERNEL: from a terminal, and not from a process


def run(
    command: Annotated[
        list[str], typer.Argument(help="Program to run, and its arguments.", metavar="CMD")
    ],
    machine: Annotated[
        str | None, typer.Option(help="Machine to run as. Default: the one the service answers as.")
    ] = None,
    network: Annotated[
        Network,
        typer.Option(
            help="What else the program can reach: the whole network (full), what listens on this"
            " machine's loopback, or nothing (none). auto: full if pasta or slirp4netns is"
            " installed, otherwise loopback."
        ),
    ] = Network.AUTO,
    fake_time: Annotated[
        bool,
        typer.Option(
            "--fake-time", help="Set the program's clock to the service's (needs libfaketime)."
        ),
    ] = False,
    netns: Annotated[
        bool,
        typer.Option(
            "--netns/--no-netns",
            help="Use a network namespace. Without one, FOREWARN_METADATA has the endpoint's URL.",
        ),
    ] = True,
    url: Url = None,
) -> None:
    """Run a program with the service at 169.254.169.254, and exit with its exit code."""
    with _not_run(), service(url) as client, ExitStack() as around:
        target = _target(client, machine)
        fake = _faked(client, command[0], around) if fake_time else None
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
        try:
            if netns:
                process = _enclosed(command, target, network, fake, before, around)
            else:
                process = _beside(command, target, fake, before)
        except OSError as error:
            _cannot(command[0], error)
        if fake is not None:
            around.callback(fake.forget, process.pid)
            around.enter_context(_following(client, fake))
        code = _stand_in(process)
    raise typer.Exit(code)


@contextmanager
def _not_run() -> Iterator[None]:
    """Whatever kept it from being run has an exit code that is none of the program's."""
    try:
        yield
    except typer.Exit as error:
        raise typer.Exit(NOT_RUN if error.exit_code == 1 else error.exit_code) from None


def _target(client: ControlClient, name: str | None) -> tuple[str, int]:
    """Where asking is asking as this machine."""
    if name is None:
        where = client.status().metadata
    else:
        machine = client.machine(name)
        where = machine.metadata_url
        if where and urlsplit(where).hostname not in machine.addresses:
            fail(
                f"{name} cannot be spoken for: this service knows machines by the address that"
                " they ask from; forewarn run needs one that goes by the address they ask"
                " (forewarn dev)"
            )
    if not where:
        fail("this service has no metadata address; start it with --metadata")
    parts = urlsplit(where)
    target = parts.hostname or "", parts.port or 80
    try:
        socket.create_connection(target, CONNECT_WITHIN).close()
    except OSError as error:
        fail(f"cannot connect to {where}: {error.strerror or error}")
    return target


def _faked(client: ControlClient, program: str, around: ExitStack) -> FakeTime:
    from forewarn.testing.enclosure import FakeTime, NoFakeTime
    from forewarn.testing.enclosure.program import fake_time_problem

    clock = client.clock()
    if not clock.virtual:
        fail("--fake-time: this service runs on real time; start it with --clock virtual")
    try:
        fake = around.enter_context(FakeTime(from_datetime(clock.now)))
    except NoFakeTime as error:
        fail(f"--fake-time: {error}")
    notes(fake.notes)
    if why := fake_time_problem(program):
        notes([f"{why}: the program's clock is not changed"])
    return fake


@contextmanager
def _following(client: ControlClient, fake: FakeTime) -> Iterator[None]:
    from forewarn.testing.enclosure.follow_clock import ClockFollower

    def look() -> int | None:
        try:
            return from_datetime(client.clock().now)
        except ControlError:  # it may come back
            return None

    with ClockFollower(look, fake.set):
        yield


def _enclosed(
    command: Sequence[str],
    target: tuple[str, int],
    network: Network,
    fake: FakeTime | None,
    blocked: set[signal.Signals | int],
    around: ExitStack,
) -> subprocess.Popen[Any]:
    from forewarn.testing.enclosure import CannotEnclose, Enclosure

    try:
        inside = around.enter_context(Enclosure(target, network=network))
    except CannotEnclose as error:
        fail(str(error))
    notes(inside.notes)
    env = fake.environment() if fake is not None else None
    return inside.popen(command, env=env, blocked=blocked)


def _beside(
    command: Sequence[str],
    target: tuple[str, int],
    fake: FakeTime | None,
    blocked: set[signal.Signals | int],
) -> subprocess.Popen[Any]:
    from forewarn.testing.enclosure import start

    env = fake.environment() if fake is not None else dict(os.environ)
    env["FOREWARN_METADATA"] = f"http://{target[0]}:{target[1]}"
    return start.start(command, [], env=env, blocked=blocked)


def _cannot(program: str, error: OSError) -> NoReturn:
    say(f"forewarn: {program}: {error.strerror or error}", err=True)
    raise typer.Exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN) from error


def _stand_in(process: subprocess.Popen[Any]) -> int:
    """Pass signals on until the program has ended; its exit code, as a shell has it."""
    while process.poll() is None:
        told = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if told.si_signo != signal.SIGCHLD and _ours_to_pass_on(told):
            process.send_signal(told.si_signo)
    code = process.returncode
    return code if code >= 0 else 128 - code


def _ours_to_pass_on(told: signal.struct_siginfo) -> bool:
    """Not what was typed on a terminal: the program has heard that itself. But of a terminal that
    goes away only the session's first process is told, and that may be us."""
    if told.si_code != _BY_KERNEL:
        return True
    return told.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
