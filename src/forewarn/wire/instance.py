"""Instance metadata (`/metadata/instance`): a machine's tree in a version, and the node at a path.

Pure: facts in, bytes out. The fields are in `instance_fields`; the caller has checked the version,
the method and the headers. Also here: the body of `/metadata/versions`, and the conversion between
the number and the host name of a scale set member.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from forewarn.wire.instance_fields import FIELDS, Facts, Node

__all__ = [
    "INSTANCE_VERSIONS",
    "Facts",
    "InstanceAnswer",
    "InstanceBody",
    "NeedsText",
    "NoSuchElement",
    "Node",
    "answer",
    "host_name_of",
    "instance_of",
    "tree",
    "versions_body",
]

# The api-versions of the metadata service, all of which `/metadata/instance` supports. Scheduled
# Events has its own, shorter list (`versions.py`), with dates that are not in this one.
INSTANCE_VERSIONS: tuple[str, ...] = (
    "2017-03-01",
    "2017-04-02",
    "2017-08-01",
    "2017-10-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
    "2021-03-01",
    "2021-05-01",
    "2021-08-01",
    "2021-10-01",
    "2021-11-01",
    "2021-11-15",
    "2021-12-13",
    "2023-07-01",
    "2023-11-15",
    "2024-03-15",
    "2024-07-17",
    "2025-04-07",
)
"""In ascending order. Versions are compared as strings everywhere."""

JSON_TYPE = "application/json; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"


class InstanceBody(msgspec.Struct, frozen=True):
    """The answer is 200 with this body."""

    body: bytes
    content_type: str


class NeedsText(msgspec.Struct, frozen=True):
    """The answer is 400: the path leads to a leaf, which is only available with format=text."""


class NoSuchElement(msgspec.Struct, frozen=True):
    """The answer is 404: this version has nothing at the path."""


InstanceAnswer: TypeAlias = InstanceBody | NeedsText | NoSuchElement


def tree(facts: Facts, version: str) -> dict[str, Node]:
    """Return all that a version shows of a machine."""
    root: dict[str, Node] = {}
    for field in FIELDS:
        if field.since <= version < field.until:
            _insert(root, field.path.split("."), field.shows(facts))
    return root


def answer(facts: Facts, version: str, path: Sequence[str], format: str) -> InstanceAnswer:
    """Answer a GET; `path` is the elements after `/metadata/instance`."""
    node = _find(tree(facts, version), path)
    if node is None:
        return NoSuchElement()
    if format.lower() == "text":
        return InstanceBody(_text(node).encode(), TEXT_TYPE)
    if isinstance(node, str):
        return NeedsText()
    return InstanceBody(msgspec.json.encode(node), JSON_TYPE)


def _insert(root: dict[str, Node], path: list[str], value: Node) -> None:
    branch = root
    for name in path[:-1]:
        child = branch.setdefault(name, {})
        assert isinstance(child, dict), f"{name} is a leaf in one row and a branch in another"
        branch = child
    branch[path[-1]] = value


def _find(root: Node, path: Sequence[str]) -> "Node | None":
    # Clients request `/metadata/instance/compute/` as well as `/metadata/instance/compute`.
    elements = path[:-1] if path and not path[-1] else path
    node: Node | None = root
    for element in elements:
        node = _children(node).get(element.lower()) if node is not None else None
    return node


def _children(node: Node) -> dict[str, Node]:
    """Return the children by lower-case name; items of a list are named by their index."""
    if isinstance(node, dict):
        return {name.lower(): child for name, child in node.items()}
    if isinstance(node, list):
        return {str(index): child for index, child in enumerate(node)}
    return {}


def _text(node: Node) -> str:
    """Return a leaf itself, or the names of the children, with a slash after those of branches."""
    if isinstance(node, str):
        return node
    children = node.items() if isinstance(node, dict) else enumerate(node)
    return "\n".join(
        f"{name}" if isinstance(child, str) else f"{name}/" for name, child in children
    )


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WIDTH = 6


def host_name_of(prefix: str, n: int) -> str:
    """Return the host name of member `n` of a scale set: `vmss` and 18 make `vmss00000i`."""
    if not prefix or not 0 <= n < len(_DIGITS) ** _WIDTH:
        raise ValueError(
            f"no host name for member {n} of {prefix!r}: six digits of base 36 at most"
        )
    digits = ""
    for _ in range(_WIDTH):
        n, digit = divmod(n, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return prefix + digits


def instance_of(host_name: str) -> tuple[str, int]:
    """Return the prefix and the number in a scale set member's host name, ignoring case.

    Any name that ends in six letters or digits looks like one: only for scale set members.
    """
    prefix, digits = host_name[:-_WIDTH], host_name[-_WIDTH:]
    if not prefix or not (digits.isascii() and digits.isalnum()):
        raise ValueError(f"{host_name!r} is not a prefix and six digits of base 36")
    return prefix, int(digits, len(_DIGITS))


def versions_body() -> bytes:
    """Return the body of `/metadata/versions`."""
    return msgspec.json.encode({"apiVersions": INSTANCE_VERSIONS})
