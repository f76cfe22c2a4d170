"""A run of the lab: guests poll, operators raise events all the time, and one fault after the other
happens; then the books are looked at."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from forewarn.support import guard
from helpers.endpoint import approval
from helpers.recording_guests import Guest, Place
from helpers.serve_process import FOREWARN
from helpers.waiting import LIMIT, until
from lab.books import Books, Fault, Raised
from lab.nemesis import Nemesis
from lab.world import GUESTS, HOSTS, KINDS, World, group_of

NOBODY_APPROVES = "mail"  # the events of this group: they start when their time comes
NOTICE = 5  # seconds, of those
BACK = (
    "disconnected-backwards",
    "came-back",
)  # rules: events that were over may be, after a restore
ASK_AGAIN = 0.1  # seconds after which an operator asks again who was not answered


class LabGuest(Guest):
    """One that writes into the books, and into a trace."""

    def __init__(self, name: str, place: Place, books: Books, trace: Path) -> None:
        super().__init__(name, place)
        self._books = books
        self._trace = trace.open("w")

    def ask(self, place: Place, method: str = "GET", body: bytes = b"") -> dict[str, Any]:
        line = self.exchange(place, method, body)
        self._books.enter(line)
        self._trace.write(f"{json.dumps(line)}\n")
        return line

    def stop(self) -> None:
        super().stop()
        self._trace.close()


class Operator:
    """Raises one event of a group after the other, and has it approved, or lets its time come."""

    def __init__(self, world: World, group: str, guests: list[LabGuest], run: Run) -> None:
        self._world, self.group, self._guests, self._run = world, group, guests, run
        self._chance = Random(f"{run.seed} {group}")
        self.count = 0
        self.thread = threading.Thread(target=self._go_on)
        self.failure: BaseException | None = None

    def _go_on(self) -> None:
        try:
            while not self._run.over.is_set():
                self._raise_one()
        except BaseException as failure:
            self.failure = failure

    def _raise_one(self) -> None:
        machine = self._chance.choice(self._guests).name
        body: dict[str, Any] = {"type": "Reboot", "machines": [machine]}
        if self.group == NOBODY_APPROVES:
            body |= {"notice": NOTICE, "short_notice": True}
        key = f"{self.group}-{self.count}"
        restores = self._world.restores
        output = until(
            lambda: self._answered("POST", "/v1/events", body, Idempotency_Key=key),
            f"an event of {self.group} is raised",
        )
        event = str(output["id"])
        self._run.books.raised.append(Raised(event, machine))
        if self.group != NOBODY_APPROVES:
            self._approve(event)
        until(
            lambda: self._world.restores > restores or self._is_over(event),
            f"{event} of {machine} is over",
        )
        if self._world.restores > restores:
            self._begin_anew(event)
        self.count += 1

    def _begin_anew(self, event: str) -> None:
        """After a restore: the last event may be lost, or not approved any more; and events that
        were over may be back."""
        self._run.books.forgotten.add(event)

        def none_left() -> bool:
            active = self._answered("GET", f"/v1/events?group={self.group}")
            for left in active or ():
                if left["status"] == "Scheduled":
                    self._world.api("POST", f"/v1/events/{left['id']}/cancel", {})
            return active is not None and not active

        until(none_left, f"{self.group} has no events")

    def _approve(self, event: str) -> None:
        guest = self._chance.choice(self._guests)

        def answered() -> bool:
            if guest.ask(guest.place, "POST", approval(event))["status"] in (200, 400, 404):
                return True
            _pause()
            return False

        until(answered, f"{event} is approved")

    def _answered(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        output = self._world.api(method, path, body, **headers)
        if output is None or output.status in (
            404,
            409,
        ):  # lost in a restore, in doubt, or under way
            _pause()
            return None
        assert output.status in (200, 201), output.body
        return output.json()

    def _is_over(self, event: str) -> bool:
        output = self._answered("GET", f"/v1/history?event={event}")
        whats = {record["what"] for record in output["records"]} if output else set()
        if "approved" in whats:
            self._run.books.approved.add(event)
        if "finished" in whats:
            self._run.books.finished.add(event)
        return "finished" in whats


class Run:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        host_of = {name: host for name, (host, _) in GUESTS.items()}
        self.books = Books(host_of, absences=world.absences)
        self.over = threading.Event()
        self._chance = Random(seed)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Run:
        with contextlib.ExitStack() as undo:
            room = self.world.room
            self.guests = {
                name: LabGuest(name, self.world.place(name), self.books, room / f"{name}.trace")
                for name in GUESTS
            }
            for guest in self.guests.values():
                guest.start()
                undo.callback(guest.stop)
            until(lambda: len(self.books.shown) == len(GUESTS), "all guests are shown a document")
            self._operators = [self._operator(group) for group in KINDS]
            for operator in self._operators:
                operator.thread.start()
                undo.callback(operator.thread.join)
            undo.callback(self.over.set)
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _operator(self, group: str) -> Operator:
        guests = [guest for name, guest in self.guests.items() if group_of(name) == group]
        return Operator(self.world, group, guests, self)

    def happen(self, faults: Iterable[Nemesis], hold: tuple[float, float]) -> None:
        """Let each fault happen, for a time in this range, and all be well after it."""
        for fault in faults:
            entry = Fault(fault.__name__.replace("_", " "), _now())
            self.books.faults.append(entry)
            with fault(self.world, self._chance):
                self.over.wait(self._chance.uniform(*hold))
                entry.ended = _now()
            until(self.world.is_well, f"all is well after: {entry.name}")
            self._work_goes_on()
            entry.well = _now()

    def _work_goes_on(self) -> None:
        """Wait until an event is over of each group whose events are approved."""
        operators = [o for o in self._operators if o.group != NOBODY_APPROVES]
        before = [operator.count for operator in operators]

        def done() -> bool:
            for operator in self._operators:
                if operator.failure is not None:
                    raise operator.failure
            return all(o.count > b for o, b in zip(operators, before, strict=True))

        until(done, "an event of each group is over")

    def table(self) -> str:
        names = [fault.name for fault in self.books.faults]
        return "\n".join(
            (
                f"seed {self.seed}",
                f"faults {len(names)}, of which {sum('cut off' in n for n in names)} partitions and"
                f" {sum(n.startswith(('primary', 'database')) for n in names)} of the database",
                f"take-overs {self.world.take_overs()}",
                f"events {len(self.books.raised)}, impacts {len(self.books.impacts)}",
                f"polls {len(self.books.polls)}, approvals {len(self.books.approvals)}",
                self.books.table(),
            )
        )

    def findings(self) -> list[str]:
        """Everything that was broken, by our own books and by the judge; call it after the end."""
        room = self.world.room
        self.books.impacts = _lines(room / "impacts.jsonl")
        self.books.ends = {line["event"]: line["t"] for line in _lines(room / "ends.jsonl")}
        return [*self.books.findings(), *self._judged()]

    def _judged(self) -> Iterable[str]:
        room = self.world.room
        nodes = [room / f"{host}.jsonl" for host in HOSTS]
        control = sorted(room.glob("c?.jsonl"))
        words: list[str | Path] = [
            *FOREWARN,
            "conformance",
            "--json",
            *control,
            *nodes,
        ]
        judged = self.world.network.host.run(words, timeout=LIMIT, check=False)
        if judged.returncode > 1:
            yield f"conformance: {judged.stdout}{judged.stderr}"
            return
        for finding in json.loads(judged.stdout)["findings"]:
            if not (self.world.restores and finding["rule"] in BACK):
                yield f"conformance: {finding}"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _pause() -> None:
    threading.Event().wait(ASK_AGAIN)


def _now() -> float:
    return guard.wall_us() / 1e6
