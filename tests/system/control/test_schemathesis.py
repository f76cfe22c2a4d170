"""The API does what its document says: schemathesis reads the one and tries the other, with what is
right and with what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.control.client.client import ControlClient
from forewarn.control.http.access import token_attempts
from forewarn.control.schema.tokens import TokenRequest
from forewarn.testing import SAMPLE, Service
from helpers.paths import ROOT

HERE = Path(__file__).parent / "schemathesis_run"
DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
PROGRAM = Path(sys.executable).with_name("schemathesis")
EXAMPLES = 2  # of each call that are right, and as many that are wrong
PATIENCE = 900  # seconds; it takes some 20 if nothing else runs


def test_the_api_is_what_its_document_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        token_attempts, "MAX_FAILED", 10**9
    )  # wrong tokens are tried by the hundred
    with Service(SAMPLE, sockets=True, state=tmp_path / "state.db") as service:
        made = ControlClient(service.control_url).create_token(
            TokenRequest(name="tester", role="admin")
        )
        run = subprocess.run(
            [
                *(PROGRAM, "--config-file", HERE / "schemathesis.toml"),
                *("run", DOCUMENT, "--url", service.control_url),  # which is the one it serves
                *("--header", f"Authorization: Bearer {made.token}"),
                *("--phases", "fuzzing"),
                *("--checks", "all", "--seed", "1", "--max-examples", str(EXAMPLES)),
                *("--continue-on-failure", "--workers", "1", "--warnings", "off"),
                *("--generation-database", ":memory:"),
            ],
            cwd=tmp_path,
            env={  # nothing else: for each call, it looks for a proxy in all of it
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "LANG": "C.UTF-8",
                "PYTHONPATH": str(HERE),
                "SCHEMATHESIS_HOOKS": "forewarn_hooks",
                "FOREWARN_TEST_TOKEN": f"tester,{made.id}",
                # Its tables of characters are made once for all tests.
                "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        response = f"{run.stdout}\n{run.stderr}"
        assert run.returncode == 0, _failures(response)
        assert "✅ Fuzzing" in response, _failures(response)
        service.faults.clear()  # whatever it has made up
        # Whoever has not been deleted by then.
        left = next(name for name in service.addresses if service[name].alive)
        assert service.document(left) is not None  # and it serves guests as before


def _failures(response: str) -> str:
    """What it found, without what it warns of."""
    found = response.partition("= FAILURES =")[2].partition("= WARNINGS =")[0]
    return found or response[-8_000:]
