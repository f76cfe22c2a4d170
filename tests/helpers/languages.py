"""The other languages of examples/clients: their programs on this machine, and how to compile."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from helpers.paths import ROOT

EXAMPLES = ROOT / "examples" / "clients"
STATIC = ("-gccgoflags", "-static")  # of gccgo; to find libraries takes half of a short life
GO_ENVIRONMENT = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
LIBRARIES = ("-r:System.Net.Http", "-r:System.Runtime.Serialization")


class Language(msgspec.Struct, frozen=True):
    fence: str  # what a block of code is called
    tools: tuple[str, ...]
    needs: str


LANGUAGES = {
    "go": Language("go", ("go",), "Go: apt-get install gccgo"),
    "node": Language("js", ("node",), "Node 18 or newer: apt-get install nodejs"),
    "csharp": Language(
        "csharp",
        ("mcs", "mono"),
        "Mono: apt-get install mono-mcs libmono-system-net-http4.0-cil"
        " libmono-system-runtime-serialization4.0-cil",
    ),
}


def tools(language: str) -> Mapping[str, str | None]:
    """The programs that an example needs, and where they are; None is not here."""
    if language == "go":
        # gccgo comes with its standard library compiled. Any other Go compiles net/http first,
        # for more than a minute, and is taken only where there is no other.
        found = sorted(Path("/usr/bin").glob("go-[0-9]*"))
        return {"go": str(found[-1]) if found else shutil.which("go")}
    return {tool: shutil.which(tool) for tool in LANGUAGES[language].tools}


def are_here(language: str) -> bool:
    return all(tools(language).values())


def program(language: str, room: Path) -> tuple[str, ...]:
    """The command of the example, which is compiled in `room` if need be."""
    source, target = EXAMPLES / language, room / f"{language}-drain"
    found = {tool: str(place) for tool, place in tools(language).items()}
    if language == "node":
        return (found["node"], str(source / "drain.js"), "--every", "0.1")
    if language == "go":
        static = STATIC if Path(found["go"]).name != "go" else ()
        command = [found["go"], "build", *static, "-o", str(target), "."]
        _compile(command, source)
        return (str(target), "-every", "100ms")
    sources = ("Events.cs", "Watcher.cs", "Drain.cs")
    _compile([found["mcs"], *LIBRARIES, f"-out:{target}", *sources], source)
    # Interpreted: to compile it at every start takes longer than all the rest.
    return (found["mono"], "--interp", str(target), "--every", "0.1")


def _compile(command: list[str], source: Path) -> None:
    environment = {**os.environ, **GO_ENVIRONMENT}
    result = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
