"""A fleet on loopback, written down for every server in its own way.

Machine 0 asks from 127.0.0.1, because that is where wrk asks from; the others have addresses
from 127.1.0.0 on. The machines stand in scale sets of a hundred, and each set has its document.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forewarn.wire.document import etag
from forewarn.wire.versions import VERSIONS

QUIET = '{"DocumentIncarnation":1,"Events":[]}'
PATH = "/metadata/scheduledevents"
QUERIES = tuple(f"api-version={version.name}" for version in VERSIONS)
POLL = f"{PATH}?{QUERIES[-1]}"

_SET = 100
_FIRST = 1 << 16  # 127.1.0.0


@dataclass(frozen=True)
class Fleet:
    size: int

    def addresses(self) -> list[str]:
        return ["127.0.0.1", *(_address(_FIRST + n) for n in range(self.size - 1))]

    def names(self) -> list[str]:
        return [f"set-{n // _SET}_{n % _SET}" for n in range(self.size)]

    def spokesmen(self) -> list[str]:
        """The address of one machine in each set."""
        return self.addresses()[::_SET]

    def yaml(self) -> str:
        lines = ["groups:"]
        for n, (name, address) in enumerate(zip(self.names(), self.addresses(), strict=True)):
            if n % _SET == 0:
                lines += [f"  - name: set-{n // _SET}", "    kind: scale-set", "    machines:"]
            lines.append(f"      - {{name: {name}, address: {address}}}")
        return "\n".join(lines) + "\n"

    def documents(self) -> list[tuple[str, str, str]]:
        """Address, tag and document of every machine, while nothing is planned."""
        tag = etag(QUIET.encode())
        return [(address, tag, QUIET) for address in self.addresses()]

    def write_plain(self, directory: Path) -> tuple[Path, Path]:
        """The query strings that are known, and the documents, for peers that read lines."""
        queries, documents = directory / "queries", directory / f"documents-{self.size}"
        queries.write_text("\n".join(QUERIES) + "\n")
        documents.write_text("".join("\t".join(line) + "\n" for line in self.documents()))
        return queries, documents

    def write_sources(self, directory: Path) -> Path:
        """Where the load generator asks from; not 127.0.0.1, if there is another."""
        path = directory / f"sources-{self.size}"
        path.write_text("\n".join(self.addresses()[1:] or self.addresses()) + "\n")
        return path


def _address(number: int) -> str:
    return f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"
