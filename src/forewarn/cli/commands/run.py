"""`forewarn run`: run a program as one of the machines, without changing the program.

Namespace and clock are made by `testing.enclosure`. This module finds the service, forwards signals
to the program, and exits with its exit code.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlsplit

import typer

from forewarn.cli import completion
from forewarn.cli.commands.service_options import need_linux
from forewarn.cli.output import Url, fail, print_notes, say, service
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.support import child_signals
from forewarn.support.instants import from_datetime
from forewarn.support.system import ON_LINUX
from forewarn.testing.enclosure.messages import Network

if TYPE_CHECKING:
    from forewarn.testing.enclosure import FakeTime
    from forewarn.testing.enclosure.public_cloud import PublicCloud

# Exit codes, as those of env and docker.
NOT_RUN = 125  # the program was not started
CANNOT_RUN = 126  # the program exists and cannot be executed
NOT_FOUND = 127  # there is no such program
CONNECT_WITHIN = 5.0  # seconds for the service to accept a connection
FORWARDED = frozenset(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)  # --help is shown on every system
)

_BY_KERNEL = 0x80  # SI_KERNEL: sent by a terminal, not by a process


def run(
    command: Annotated[
        list[str], typer.Argument(help="Program to run, and its arguments.", metavar="CMD")
    ],
    machine: Annotated[
        str | None,
        typer.Option(
            help="Machine to run as. Default: the service's default machine.",
            autocompletion=completion.machines,
        ),
    ] = None,
    network: Annotated[
        Network,
        typer.Option(
            help="What else the program can reach: the whole network ('full'), what listens on this"
            " machine's loopback ('loopback'), or nothing ('none'). 'auto' is 'full' if pasta or"
            " slirp4netns is installed, and 'loopback' otherwise."
        ),
    ] = Network.AUTO,
    arm: Annotated[
        bool,
        typer.Option(
            "--arm",
            help="Let the program also reach the service as Azure's public cloud: as"
            " management.azure.com and login.microsoftonline.com.",
        ),
    ] = False,
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
            help="Use a network namespace. Without one, the program finds the endpoint's URL in"
            " FOREWARN_METADATA.",
        ),
    ] = True,
    url: Url = None,
) -> None:
    """Run a program with the service at 169.254.169.254, and exit with its exit code."""
    if arm and not netns:
        raise typer.BadParameter("it needs a network namespace", param_hint="--arm")
    if netns or fake_time:
        need_linux(
            "--fake-time" if fake_time else "forewarn run",
            "with --no-netns, the program finds the endpoint's URL in FOREWARN_METADATA",
        )
    with _exit_codes(), service(url) as client, ExitStack() as stack:
        target = _target(client, machine)
        child_signals.catch_ignored()
        if not ON_LINUX:
            raise typer.Exit(_run_elsewhere(command, target))
        fake = _fake_time(client, command[0], stack) if fake_time else None
        cloud = _public_cloud(client, stack) if arm else None
        with _signals_blocked():
            try:
                if netns:
                    process = _start_enclosed(command, target, network, cloud, fake, stack)
                else:
                    process = _start_plain(command, target, fake)
            except OSError as error:
                _fail_to_start(command[0], error)
        if fake is not None:
            stack.callback(fake.forget, process.pid)
            stack.enter_context(_follow_clock(client, fake))
        code = _wait(process)
    raise typer.Exit(code)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Exit with NOT_RUN if forewarn itself fails, so that it is not mistaken for the program."""
    try:
        yield
    except typer.Exit as error:
        raise typer.Exit(NOT_RUN if error.exit_code == 1 else error.exit_code) from None


def _target(client: ControlClient, name: str | None) -> tuple[str, int]:
    """Return the address at which requests are answered as those of the machine."""
    if name is None:
        url = client.status().metadata
    else:
        machine = client.machine(name)
        url = machine.metadata_url
        shared = url == client.status().metadata  # not the machine's own address or port
        if url and shared and urlsplit(url).hostname not in machine.addresses:
            fail(
                f"cannot run as {name}: this service identifies machines by their source address;"
                " forewarn run needs a service that identifies them by the address they connect to"
                " (forewarn dev)"
            )
    if not url:
        fail("this service has no metadata address; start it with --metadata")
    parts = urlsplit(url)
    target = parts.hostname or "", parts.port or 80
    try:
        socket.create_connection(target, CONNECT_WITHIN).close()
    except OSError as error:
        fail(f"cannot connect to {url}: {error.strerror or error}")
    return target


def _fake_time(client: ControlClient, program: str, stack: ExitStack) -> FakeTime:
    from forewarn.testing.enclosure import FakeTime, NoFakeTime
    from forewarn.testing.enclosure.program import fake_time_problem

    clock = client.clock()
    if not clock.virtual:
        fail("--fake-time: this service runs on real time; start it with --clock virtual")
    try:
        fake = stack.enter_context(FakeTime(from_datetime(clock.now)))
    except NoFakeTime as error:
        fail(f"--fake-time: {error}")
    print_notes(fake.notes)
    if why := fake_time_problem(program):
        print_notes([f"{why}: the program's clock is not changed"])
    return fake


@contextmanager
def _follow_clock(client: ControlClient, fake: FakeTime) -> Iterator[None]:
    """Keep the program's clock equal to that of the service."""
    from forewarn.testing.enclosure.follow_clock import ClockFollower

    def now() -> int | None:
        try:
            return from_datetime(client.clock().now)
        except ControlError:  # the service may come back
            return None

    with ClockFollower(now, fake.set):
        yield


def _public_cloud(client: ControlClient, stack: ExitStack) -> PublicCloud:
    """Return what makes a program take the service for the public cloud, until the stack ends."""
    from forewarn.testing.enclosure.public_cloud import NotThatCloud, PublicCloud

    parts = urlsplit(client.status().arm)
    if not parts.hostname:
        fail(
            "--arm: this service has no API for az and Azure's SDKs; start it with"
            " forewarn dev --arm"
        )
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="forewarn-"))
    try:
        return PublicCloud((parts.hostname, parts.port or 443), Path(directory))
    except NotThatCloud as error:
        fail(f"--arm: {error}")


def _start_enclosed(
    command: Sequence[str],
    target: tuple[str, int],
    network: Network,
    cloud: PublicCloud | None,
    fake: FakeTime | None,
    stack: ExitStack,
) -> subprocess.Popen[Any]:
    from forewarn.testing.enclosure import CannotEnclose, Enclosure

    try:
        enclosure = stack.enter_context(Enclosure(target, network=network, cloud=cloud))
    except CannotEnclose as error:
        fail(str(error))
    print_notes(enclosure.notes)
    env = fake.environment() if fake is not None else None
    return enclosure.popen(command, env=env)


def _start_plain(
    command: Sequence[str], target: tuple[str, int], fake: FakeTime | None
) -> subprocess.Popen[Any]:
    from forewarn.testing.enclosure import start

    env = _with_endpoint(fake.environment() if fake is not None else dict(os.environ), target)
    return start.start(command, [], env=env)


def _with_endpoint(env: dict[str, str], target: tuple[str, int]) -> dict[str, str]:
    return {**env, "FOREWARN_METADATA": f"http://{target[0]}:{target[1]}"}


def _run_elsewhere(command: Sequence[str], target: tuple[str, int]) -> int:
    """Run the program on a system other than Linux. What is typed at a terminal reaches it, too, so
    only SIGTERM is passed on."""
    found = shutil.which(command[0]) or command[0]
    try:
        process = subprocess.Popen(
            [found, *command[1:]], env=_with_endpoint({**os.environ}, target)
        )
    except OSError as error:
        _fail_to_start(command[0], error)
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    return _exit_code(process.wait())


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block the signals that are waited for while the program runs; not if it does not start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    try:
        yield
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise


def _fail_to_start(program: str, error: OSError) -> NoReturn:
    say(f"forewarn: {program}: {error.strerror or error}", err=True)
    raise typer.Exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN) from error


def _wait(process: subprocess.Popen[Any]) -> int:
    """Forward signals until the program ends, and return its exit code as a shell would."""
    while process.poll() is None:
        info = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD and _is_to_forward(info):
            process.send_signal(info.si_signo)
    return _exit_code(process.returncode)


def _exit_code(code: int) -> int:
    """Return an exit code as a shell would: for a signal, 128 and its number."""
    return code if code >= 0 else 128 - code


def _is_to_forward(info: signal.struct_siginfo) -> bool:
    """Return whether the program has not received a signal itself. What is typed at a terminal
    reaches both, but when the terminal is closed only the session leader gets SIGHUP."""
    if info.si_code != _BY_KERNEL:
        return True
    return info.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
