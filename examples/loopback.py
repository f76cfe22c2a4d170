"""A fleet on this computer, for the examples beside this file: the service on free ports, machines
that are processes, commands as one would type them, and the end of it all.

What an example shows is in its own folder; what is done to a machine in drivers/local_machines.py.
"""

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
from pathlib import Path

EXAMPLES = Path(__file__).parent
DRIVER = EXAMPLES / "drivers" / "local_machines.py"
PATIENCE = 120.0  # seconds for anything that is waited for; longer than start_grace
LOOK_EVERY = 0.05  # seconds between two looks meanwhile
AT_MOST = 240  # seconds for all of it
LAST = 30  # lines of each that are shown if something goes wrong
PACKAGES = {"redis-cli": "redis-tools"}  # where a program's has another name

sys.path.append(str(DRIVER.parent))
from local_machines import kill, members, process_of, start, state  # noqa: E402


class Broken(Exception):
    """What the example promises did not come true."""


class Stuck(Exception):
    """It did not even get that far."""


def need(*programs: str) -> None:
    if importlib.util.find_spec("forewarn") is None:
        sys.exit(f"{sys.executable} has no forewarn: . .venv/bin/activate first")
    for program in programs:
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            sys.exit(f"this needs {program}: apt-get install {PACKAGES.get(program, program)}")


class Fleet:
    """`forewarn dev` with a fleet file, whose machines are made of processes."""

    def __init__(self, fleet: Path, *options: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="forewarn-example-"))
        self.machines = self.directory / "machines"
        self.machines.mkdir()
        self._printed: dict[str, list[list[str]]] = {}
        self._others: dict[str, subprocess.Popen] = {}
        self._ended = contextlib.ExitStack()
        self._ended.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._ended.callback(self._switch_off)
        kept = {name: word for name, word in os.environ.items() if not name.startswith("FOREWARN_")}
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        self.environment = {**kept, "PATH": path, "XDG_RUNTIME_DIR": str(self.directory)}
        self.urls: dict[str, str] = {}  # where each machine asks
        try:
            self._serve(fleet, options)
        except BaseException:
            self._ended.close()
            raise

    def _serve(self, fleet: Path, options: tuple[str, ...]) -> None:
        driver = shlex.join([sys.executable, str(DRIVER), str(self.machines)])
        ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        here = shlex.quote(str(self.directory))
        more = [option.replace("DIRECTORY", here) for option in options]
        words = ["dev", "--fleet", str(fleet), *ports, "--driver-command", driver, *more]
        service = self.start("service", [*forewarn(), *words], stdout=subprocess.PIPE)
        word, _, urls = service.stdout.readline().decode().partition(" ")
        if word != "ready":
            raise Stuck(f"the service did not start:\n{self.output('service')}")
        self.environment["FOREWARN_URL"] = json.loads(urls)["control"]
        for line in self.output("service").splitlines():
            if line.startswith("  http://"):
                url, name, *_ = line.split()
                self.urls[name] = url

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is Stuck:
            self.print_outputs()
        self._ended.close()

    def address(self, machine: str) -> str:
        """Each machine has a loopback address of its own."""
        return self.urls[machine].removeprefix("http://").partition(":")[0]

    def type(self, line: str) -> str:
        """Type a command, as anybody would, and show what it says as it comes."""
        say(f"$ {line}")
        argv, printed = [*forewarn(), *shlex.split(line)[1:]], []
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(argv, env=self.environment, **streams) as command:
            try:
                for word in command.stdout:
                    printed.append(word)
                    say(f"  {word}".rstrip())
            except BaseException:
                command.kill()
                raise
        if command.returncode != 0:
            raise Stuck(f"{line}: exit code {command.returncode}")
        return "".join(printed)

    def stay(self, *lines: str) -> None:
        """Leave the rest to whoever sits there, until Ctrl-C."""
        signal.alarm(0)
        say("it stays as it is until you press Ctrl-C. In another terminal:")
        for line in (f"export FOREWARN_URL={self.environment['FOREWARN_URL']}", *lines):
            say(f"$ {line}")
        say(f"what the machines say is in {self.machines}/*/console")
        signal.pause()

    def place(self, machine: str) -> Path:
        """The directory that is the machine's disk."""
        (self.machines / machine).mkdir(exist_ok=True)
        return self.machines / machine

    def boot(self, machine: str, argv: list[str], **environment: str) -> None:
        """Switch a machine on: `argv` is what it runs, now and whenever it is rebooted."""
        place = self.place(machine)
        settings = {
            "PATH": os.environ["PATH"],
            "FOREWARN_METADATA": self.urls[machine],
            **environment,
        }
        words = ["env", "-i", *(f"{name}={word}" for name, word in settings.items()), *argv]
        (place / "start").write_text(
            f"#!/bin/sh\ncd {shlex.quote(str(place))}\nexec {shlex.join(words)}\n"
        )
        (place / "start").chmod(0o755)
        process = start(place)
        threading.Thread(target=process.wait, daemon=True).start()  # buries it when it has died

    def console(self, machine: str) -> str:
        """All of its output."""
        return (self.machines / machine / "console").read_text(errors="replace")

    def tell(self, machine: str) -> None:
        """Print what its console has shown since the last call."""
        printed = self._printed.setdefault(machine, [])
        for line in self.console(machine).splitlines()[len(printed) :]:
            words = in_words(line)
            if words not in printed:  # an agent that starts tells again how the last hook ended
                for word in words:
                    say(f"{machine}: {word}")
            printed.append(words)

    def is_on(self, machine: str) -> bool:
        with contextlib.suppress(FileNotFoundError):  # it is gone for good
            return bool(members(process_of(self.machines / machine)))
        return False

    def is_frozen(self, machine: str) -> bool:
        found = members(process_of(self.machines / machine))
        return bool(found) and all(state(pid) == "T" for pid in found)

    def start(
        self, name: str, argv: list[str], stdout: int | None = None, **environment: str
    ) -> subprocess.Popen:
        """Something that is no machine, and ends with the example."""
        with (self.directory / f"{name}.output").open("wb") as file:
            process = subprocess.Popen(
                argv,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stdout or file,
                stderr=file,
            )
        self._ended.callback(end, process)
        self._others[name] = process
        return process

    def end(self, name: str) -> None:
        end(self._others[name])

    def output(self, name: str) -> str:
        return (self.directory / f"{name}.output").read_text(errors="replace")

    def print_outputs(self) -> None:
        """Print the last output of everything, for whoever has to find out what went wrong."""
        for path in sorted([*self.directory.glob("*.output"), *self.machines.glob("*/console")]):
            sys.stderr.write(f"--- {path.relative_to(self.directory)}\n")
            sys.stderr.write("".join(path.read_text(errors="replace").splitlines(True)[-LAST:]))

    def _switch_off(self) -> None:
        for pid in self.machines.glob("*/pid"):
            kill(process_of(pid.parent))


def in_words(line: str) -> list[str]:
    """Of an agent's log what it did, and what its hooks printed; of anything else all."""
    if not line.startswith("{"):
        return [] if line.startswith("ready ") else [line]
    record = json.loads(line)
    if record["event"] == "approved":
        return [f"approved the {record['type']}"]
    if record["event"] == "hook ended":
        done = "done" if record["ok"] else f"failed ({record['outcome']}, {record.get('code')})"
        output = [f"  {words}" for words in record.get("output", "").splitlines()]
        return [f"hook {record['hook']}: {record['stage']} {done}", *output]
    return []


def forewarn() -> list[str]:
    return [sys.executable, "-m", "forewarn"]


def end(process: subprocess.Popen) -> None:
    with process:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


def free_port(address: str) -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        return found.getsockname()[1]


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as there:
        return there.connect_ex((host, int(port))) == 0


def wait_until(true, what: str, patience: float = PATIENCE):
    """What `true` answers, as soon as that is something."""
    last = time.monotonic() + patience
    while not (answer := true()):
        if time.monotonic() > last:
            raise Stuck(f"within {patience:g} s it did not come true that {what}")
        time.sleep(LOOK_EVERY)
    return answer


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def too_long(*_: object) -> None:
    raise Stuck(f"it is not over after {AT_MOST} s")


def play(example, *options: str) -> None:
    """Exit code 0 if what was promised came true; nothing is left behind either way."""
    if wrong := [word for word in sys.argv[1:] if word not in options]:
        sys.exit(f"there is no {wrong[0]}; there are {' and '.join(options)} (see README.md)")
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(AT_MOST)
    try:
        example()
    except Broken as broken:
        sys.exit(f"broken: {broken}")
    except Stuck as stuck:
        sys.exit(f"stuck: {stuck}")
    except KeyboardInterrupt:
        sys.exit(130)
