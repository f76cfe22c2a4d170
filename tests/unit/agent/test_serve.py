"""What the agent's log gets of what it cannot tell the service manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forewarn.agent.serve import _notifier_log
from forewarn.agent.telemetry.metrics import AgentMetrics
from forewarn.support.sd_notify import Notifier


def test_a_message_that_cannot_be_sent_is_a_problem_and_the_next_one_is_tried(
    tmp_path: Path,
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []

    def log(what: str, /, **facts: Any) -> None:
        logged.append((what, facts))

    nobody = str(tmp_path / "nobody")
    notifier = Notifier(nobody, log=_notifier_log(AgentMetrics().counted(log)))
    notifier.alive()
    notifier.alive()
    [(what, facts)] = logged
    assert what == "problem"
    assert facts["about"] == "manager"
    assert facts["what"] == "WATCHDOG=1"
