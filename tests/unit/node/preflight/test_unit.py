"""What is found about the systemd unit that runs the service with the checked settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.node.preflight.unit import unit_findings
from forewarn.node.settings import LoadedSettings, Settings

SYSTEMCTL = """\
#!/bin/sh
case "$*" in
*.socket*) printf 'Id=forewarn-metadata.socket\nActiveState=active\nFileDescriptorName=metadata\n'
    printf 'Listen=169.254.169.254:80 (Stream)\n%.0s' $(seq SOCKETS) ;;
*) printf 'ExecStart=forewarn serve --config SETTINGS\nTriggeredBy=forewarn-metadata.socket\n' ;;
esac
"""


@pytest.mark.parametrize(("sockets", "expected"), [(1, []), (2, ["metadata: 2 sockets"])])
def test_each_address_of_the_socket_unit_is_listened_on_once(
    sockets: int, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, systemctl = tmp_path / "forewarn.toml", tmp_path / "systemctl"
    text = SYSTEMCTL.replace("SETTINGS", str(settings)).replace("SOCKETS", str(sockets))
    systemctl.write_text(text)
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    findings = unit_findings(
        LoadedSettings(Settings()), settings, unit="forewarn.service", check="forewarn config check"
    )
    found = [str(finding) for finding in findings if finding.grade == "problem"]
    assert [" ".join(message.split()[:3]) for message in found] == expected
