"""Whatever the lines are, a picture comes of them, and it is well-formed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from forewarn.testing.timeline import Lanes, html, text
from forewarn.testing.timeline.lanes import HANDLERS
from helpers.examples import examples
from helpers.timeline_traces import REBOOT, T

anything = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([10**400, -1, [], [[]], [None], {}, {"a": {"b": []}}])
)
names = st.sampled_from(["web_0", "web_1", "\x00<&\ud800"]) | st.text(max_size=12)
ids = st.sampled_from([REBOOT, "B", "<c>"])
times = st.floats(T, T + 5_000) | st.sampled_from([0.0, 1e11, 253_402_300_799.0]) | anything
documents = st.builds(
    lambda events: json.dumps({"DocumentIncarnation": 1, "Events": events}),
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "EventId": ids | anything,
                "EventStatus": st.sampled_from(["Scheduled", "Started"]) | anything,
                "EventType": st.sampled_from(["Reboot", "Preempt"]) | anything,
                "Resources": st.lists(names, max_size=3) | anything,
                "NotBefore": st.sampled_from(["Fri, 15 Jan 2027 08:15:00 GMT", ""]) | anything,
            },
        ),
        max_size=3,
    ),
)
approvals = st.builds(lambda id: json.dumps({"StartRequests": [{"EventId": id}]}), ids)
paths = ["/metadata/scheduledevents", "/forewarn/v1/wait", "/forewarn/v1/ready/B", "/x"]
moves = ["raise", "list", "start", "strike", "finish", "withdraw"]
lines = st.fixed_dictionaries(
    {"kind": st.sampled_from(sorted(HANDLERS)) | anything, "t": times},
    optional={
        "machine": names | anything,
        "from": names | anything,
        "method": st.sampled_from(["GET", "POST", "PUT"]) | anything,
        "target": st.sampled_from(paths).map(lambda p: f"{p}?api-version=2020-07-01") | anything,
        "status": st.sampled_from([200, 304, 400, None]) | anything,
        "answer": documents | anything,
        "answer_base64": st.text(max_size=8),
        "body": approvals | anything,
        "fault": names | anything,
        "event": ids | anything,
        "scenario": names | anything,
        "ok": anything,
        "problems": st.lists(names | anything, max_size=3) | anything,
        "expectations": st.lists(
            st.fixed_dictionaries({}, optional={"expected": names | anything, "ok": anything})
            | anything,
            max_size=3,
        )
        | anything,
        "move": st.sampled_from(moves) | anything,
        "machines": st.lists(names, max_size=3) | st.dictionaries(names, anything) | anything,
        "type": st.sampled_from(["Reboot", "Freeze"]) | anything,
        "not_before": times,
        "listed": st.booleans() | anything,
        "seconds": st.floats() | anything,
        "by": names | anything,
        "group": names | anything,
    },
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(lines, max_size=8), st.integers(0, 220), names)
def test_any_lines_can_be_drawn(heard: list[dict[str, Any]], width: int, title: str) -> None:
    lanes = Lanes.of(heard)
    page = html(lanes, title=title)
    page.encode()
    body = page[page.index("<pre") : page.index("</body>")]
    ET.fromstring(body.encode())  # what is in the body of our HTML is XML as well
    output = text(lanes, width=width)
    output.encode()
    assert max(map(cell_len, output.splitlines()), default=0) <= max(width, 60)
