"""The container file, followed step by step where no image can be had: what stands in for the base
image is this machine's Debian, with the project's uv. Every other line is carried out as it is
written, and what comes out is run as it would be: as its user, with a read-only root, its volume,
its health check.

Not tried here: the base image itself, its pip, which installs uv, and a container engine.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.clean_root import CleanRoot, needed
from helpers.empty_environment import PROJECT
from helpers.paths import ROOT
from helpers.process import Running
from helpers.serve_process import ServeProcess

UV = f'shift; exec "{ROOT}/tools/uv-pip" "$@"'
PIP = "case $* in *' --require-hashes --requirement requirements/pip.lock') ;; *) exit 2 ;; esac"
FILE = ROOT / "deploy/container/Containerfile"
KNOWN = {
    *("FROM", "WORKDIR", "RUN", "COPY", "ENV", "USER", "VOLUME", "STOPSIGNAL"),
    *("HEALTHCHECK", "ENTRYPOINT"),
}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", FILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def arguments_of(what: str) -> list[str]:
    """In the last stage, which is the image."""
    last = max(i for i, (word, _) in enumerate(instructions()) if word == "FROM")
    return [rest for word, rest in instructions()[last:] if word == what]


def environment() -> dict[str, str]:
    return dict(line.split("=", 1) for line in arguments_of("ENV"))


def test_the_dockerfile_uses_only_common_instructions() -> None:
    found = instructions()
    assert {word for word, _ in found} <= KNOWN
    assert found[0][0] == "FROM"
    for word, rest in found:
        if word in ("ENTRYPOINT", "VOLUME") and rest.startswith("["):
            assert all(isinstance(one, str) for one in json.loads(rest))


def test_images_come_from_wherever_the_builder_takes_them_from_and_are_named_exactly() -> None:
    for rest in [rest for word, rest in instructions() if word == "FROM"]:
        image = rest.split()[0]
        name, _, tag = image.partition(":")
        assert "/" not in name
        assert re.fullmatch(r"3\.\d+-slim-[a-z]+", tag)


def test_the_dockerfile_copies_only_files_of_the_project() -> None:
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source


def test_the_container_does_not_run_as_root() -> None:
    (user,) = arguments_of("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    needed("unshare", "nsenter", "useradd", "python3")
    root = CleanRoot(tmp_path_factory.mktemp("image"))
    root.done("ln", "-sf", "/usr/bin/python3", "/usr/local/bin/python")
    # What `make` has installed here is in uv's cache, and need not be fetched.
    cache = subprocess.run(
        [PROJECT / "bin/uv", "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for directory in (ROOT, Path(cache)):
        root.mount(directory)
    for name, script in {"uv": UV, "pip": PIP}.items():
        write = 'printf %s "$1" > "$0"; chmod 755 "$0"'
        root.done("sh", "-c", write, f"/usr/local/bin/{name}", f"#!/bin/sh\n{script}\n")
    index = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "UV_"))}
    index["UV_CACHE_DIR"] = cache
    path = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    here = "/"
    for word, rest in instructions():
        if word == "WORKDIR":
            here = rest
            root.done("mkdir", "-p", here)
        elif word == "RUN":
            root.done("sh", "-ec", f"cd {here}\n{rest}", env={**index, **path})
        elif word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            _copy(root, sources, f"{here}/{target}")
        elif word == "COPY":
            _, source, target = rest.split()
            assert source == target  # one root stands for both stages
        elif word == "USER":
            break
    yield root
    root.close()


def _copy(root: CleanRoot, sources: list[str], target: str) -> None:
    """As COPY does: of a directory, what is in it."""
    root.done("mkdir", "-p", target)
    for source in sources:
        path = ROOT / source
        within, what = (path, ".") if path.is_dir() else (path.parent, path.name)
        pack = subprocess.Popen(
            ["tar", "-C", within, "--exclude=__pycache__", "-c", what], stdout=subprocess.PIPE
        )
        subprocess.run(root.argv(["tar", "-C", target, "-x"]), stdin=pack.stdout, check=True)
        assert pack.stdout is not None
        pack.stdout.close()
        assert pack.wait() == 0


def test_the_image_serves_with_a_read_only_root_as_its_user(image: CleanRoot) -> None:
    (volume,), (user,), (entry,) = (
        arguments_of("VOLUME"),
        arguments_of("USER"),
        arguments_of("ENTRYPOINT"),
    )
    image.done("mount", "--bind", volume, volume)
    image.done("sh", "-c", "for at in / /run /tmp; do mount -o remount,ro,bind $at || exit; done")
    (where,) = arguments_of("WORKDIR")
    # Port 0, since others listen on this machine as well; else as it is.
    more = {"FOREWARN_METADATA": "127.0.0.1:0", "FOREWARN_CONTROL": "127.0.0.1:0"}
    words = [f"{key}={value}" for key, value in {**environment(), **more}.items()]
    start = ["sh", "-c", f"cd {where} && exec {shlex.join(json.loads(entry))}"]
    argv = image.argv([*words, *start], user=user)
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running(process, argv)
    try:
        word, _, urls = running.line().partition(" ")
        assert word == "ready"
        service = ServeProcess(running, json.loads(urls))
        assert Path(f"/proc/{process.pid}").stat().st_uid == int(user.partition(":")[0])
        (health,) = arguments_of("HEALTHCHECK")
        command = json.loads(health.partition("CMD ")[2])
        command = [one.replace("http://127.0.0.1:8170", service.control) for one in command]
        image.done(*command, user=user, env=environment())
    finally:
        assert running.stop() == 0
    broken = image.run(*(f"{k}={v}" for k, v in environment().items()), *command, user=user)
    assert broken.returncode != 0  # the check finds it when nobody answers
    assert image.run("touch", "/usr/written").returncode != 0  # it was read-only
    assert image.done("ls", volume).split() != []
