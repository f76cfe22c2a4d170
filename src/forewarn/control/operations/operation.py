"""What an operation of the control API is: its request and response, and who may call it how.

The table has one entry for each operation, in the module of its subject, without the server: routes
bind a handler to an entry, the client calls one, and commands, documents and tests are made from
them. `table` has all of them by name. This module needs nothing but msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
RoleName: TypeAlias = Literal["viewer", "tenant", "operator", "admin"]

NOT_STORED = "nothing of it is stored"
CHANGES_NOTHING = "it changes nothing"
REPEATABLE = "it can be repeated safely"

# Resources whose GET has an ETag; whatever changes one of them accepts it as If-Match.
TAGGED = (
    *("/v1/machines/{name}", "/v1/groups/{name}", "/v1/hosts/{name}", "/v1/fleet"),
    *("/v1/events/{id}", "/v1/rollouts/{id}"),
)
ALONE = (
    "apply",
    "backup",
    "feed",
    "history",
    "run",
    "status",
    "tonight",
    "verdict",
)  # commands of one word


class Operation(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """The declaration of one operation. Its name in the table is its id: CORDON_HOST is
    `cordonHost`."""

    call: str  # method and path
    summary: str
    returns: type[T]  # bytes: not JSON, or not as a whole
    takes: Any = None  # type of the body
    query: Any = None  # type of the parameters after the path
    status: int = 200
    role: RoleName | None = None  # None: viewer to read, operator for everything else
    public: bool = False  # needs no token
    respects_limits: bool = False  # the handler checks the limit of the caller's token
    why_no_key: str = ""  # of a POST: why it takes no Idempotency-Key
    paged: bool = False  # the response may have a Link to the next page
    fleet_text: str = ""  # "fleet", "group", "host", … if the body is one, as YAML or JSON
    also: tuple[int, ...] = ()  # further statuses with a response of the same type
    refuses: tuple[int, ...] = ()  # statuses of errors that do not follow from the other fields
    command: str = ""  # a command of the command line that does the same, with its arguments
    used_by: tuple[str, ...] = ()  # other commands that call it
    example: Any = None  # of the body
    help: str = ""  # of its command, which is then made from this declaration
    # Of fields and parameters with other names; two names, as in `gone/present`, are of a flag.
    options: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()  # fields of the body that are arguments of the command
    defaults: Mapping[str, str] = {}  # of required fields of the body that the command has
    # The operation for one machine, which the command calls if it is given only one.
    for_one: Any = None
    done: str = ""  # what this command prints: {0} is its first argument, {result} the response

    @property
    def method(self) -> str:
        return self.call.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.call.partition(" ")[2]

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def needed_role(self) -> RoleName:
        return self.role or ("operator" if self.changes else "viewer")

    @property
    def keyed(self) -> bool:
        """Whether it accepts an Idempotency-Key; the other methods can be repeated without one."""
        return self.method == "POST" and not self.why_no_key

    @property
    def reason_for_no_key(self) -> str:
        return self.why_no_key or (REPEATABLE if self.changes else CHANGES_NOTHING)

    @property
    def tagged(self) -> bool:
        """Whether the response has an ETag."""
        return not self.changes and self.path in (*TAGGED, "/v1/calendar.ics")

    @property
    def conditional(self) -> bool:
        """Whether it accepts If-Match."""
        return self.changes and any(f"{self.path}/".startswith(f"{path}/") for path in TAGGED)

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that call it, without arguments."""
        words = self.command.split()
        own = " ".join(words[: 1 if words and words[0] in ALONE else 2])
        return (own, *self.used_by) if own else self.used_by
