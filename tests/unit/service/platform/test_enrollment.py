"""Tokens with which hosts are enrolled, and the certificates that count afterwards."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from forewarn.core import Refused
from forewarn.core.fleet import REVOKED, Host
from forewarn.core.labels import parse as parse_labels
from forewarn.core.refusal import Hint, Reason
from forewarn.core.time import DAY, HOUR, MINUTE
from forewarn.node import Config, Node
from forewarn.service.access.authority import create_authority, new_request
from forewarn.service.fleet.read import parse
from forewarn.service.platform.enrollment import (
    TOKEN_LIFE,
    CreatedEnrollment,
    Enrollments,
    IssuedCertificate,
    JoinRequest,
    NewEnrollment,
    NodeAuthority,
)
from forewarn.store.port import HistoryQuery
from helpers.certificates import Authority as OtherAuthority

FLEET = """
hosts:
  - {name: h1, labels: {rack: r1}}
  - {name: h2, labels: {rack: r1}}
  - {name: h3, labels: {rack: r2}}
groups:
  - {name: web, kind: standalone, machines: [{name: web_0, host: h1}]}
"""
THIEF = "203.0.113.66"


class Control:
    """A service on a virtual clock that enrolls hosts."""

    def __init__(self, node: Node, directory: Path) -> None:
        self.node = node
        authority = create_authority(directory / "authority")
        own = NodeAuthority(authority, ("192.0.2.1:8171",), authority.trusted)
        self.enrollments = Enrollments(node.store, node.writer, own)
        self.requests = {name: new_request(name)[1] for name in ("h1", "h2", "h3", "thief")}

    async def create(self, **wanted: Any) -> CreatedEnrollment | Refused:
        return await self.enrollments.create(NewEnrollment(**wanted), "alice")

    async def token(self, **wanted: Any) -> str:
        created = await self.create(**wanted)
        assert isinstance(created, CreatedEnrollment), created
        return created.token.partition(".")[0]

    async def join(self, token: str, key: str = "h1", **values: Any) -> IssuedCertificate | Refused:
        values = {"address": "192.0.2.50", **values}
        request = JoinRequest(token=token, request=self.requests[key], **values)
        return await self.enrollments.join(request)

    async def joined(self, token: str, key: str = "h1", **values: Any) -> bytes:
        """Return the certificate of a host that joins (DER)."""
        issued = await self.join(token, key, **values)
        assert isinstance(issued, IssuedCertificate), issued
        return ssl.PEM_cert_to_DER_cert(issued.certificate)

    def host(self, name: str = "h1") -> Host:
        return self.node.store.registry.hosts[name]

    async def history(self, host: str = "h1") -> list[tuple[str, str, str]]:
        found = await self.node.store.history(HistoryQuery(host=host))
        return [(r.what.value, r.by, r.note) for r in found]


def run(play: Callable[[Control], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        async with Node(Config(fleet=parse(FLEET), virtual=10**15)) as node:
            await play(Control(node, directory))

    asyncio.run(main())


def reason(outcome: object) -> Reason:
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


def test_a_token_is_stored_as_a_digest_and_used_up_by_its_first_use(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        token = await control.token(host="h1")
        assert token not in msgspec.json.encode(control.host()).decode()
        certificate = await control.joined(token)
        enrolled = control.host()
        assert control.enrollments.problem("h1", certificate) == ""
        # Stolen, it is worth nothing afterwards, and names whoever was first.
        refused = await control.join(token, "thief", address=THIEF)
        assert reason(refused) is Reason.CONFLICT
        assert "192.0.2.50" in str(refused)
        assert control.host() == enrolled

    run(play, tmp_path)


def test_a_driver_process_has_a_token_and_a_key_of_its_own(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        node = await control.joined(await control.token(host="h1"))
        token = await control.token(host="h1", driver=True)
        assert "forewarn driver join" in str(await control.join(token, "thief"))
        driver = await control.joined(token, "h2", driver=True)
        assert b"forewarn:driver:h1" in driver
        problem, driver_problem = control.enrollments.problem, control.enrollments.driver_problem
        assert problem("h1", node) == driver_problem("h1", driver) == ""
        assert "not the one" in problem("h1", driver)
        assert "not the one" in driver_problem("h1", node)
        assert b"forewarn:driver:h1" in ssl.PEM_cert_to_DER_cert(
            control.enrollments.renew("h1", driver, driver=True)
        )
        assert control.enrollments.renew("h1", node, driver=True) == ""
        assert reason(await control.create(host="h1", driver=True)) is Reason.CONFLICT
        again = await control.token(host="h1", driver=True, again=True)
        assert "forewarn node join" not in str(await control.join(again, "h3", driver=True))
        assert "not the one" in driver_problem("h1", driver)
        wrong = await control.token(host="h2")
        assert "forewarn node join" in str(await control.join(wrong, "h2", driver=True))

    run(play, tmp_path)


def test_a_stolen_certificate_of_a_driver_stays_revoked_when_the_node_is_enrolled_anew(
    tmp_path: Path,
) -> None:
    async def play(control: Control) -> None:
        stolen = await control.joined(await control.token(host="h1", driver=True), driver=True)
        foreign = OtherAuthority(tmp_path, "other").issue("forewarn:driver:h1")
        other = ssl.PEM_cert_to_DER_cert(foreign.certificate.read_text())
        await control.node.hosts.revoke("h1", "alice")
        await control.joined(await control.token(host="h1"))
        for certificate in (stolen, other):
            assert "revoked" in control.enrollments.driver_problem("h1", certificate)
        anew = await control.joined(
            await control.token(host="h1", driver=True), "thief", driver=True
        )
        assert control.enrollments.driver_problem("h1", anew) == ""
        assert "not the one" in control.enrollments.driver_problem("h1", stolen)
        assert [what for what, *_ in await control.history()].count("host-revoked") == 1

    run(play, tmp_path)


def test_the_same_request_may_be_repeated_because_its_answer_was_lost(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        token = await control.token(host="h1")
        await control.joined(token)
        commit = control.node.store.seq
        certificate = await control.joined(token)
        assert control.enrollments.problem("h1", certificate) == ""
        assert control.node.store.seq == commit

    run(play, tmp_path)


def test_a_token_that_was_stolen_before_it_was_used_is_worth_its_host_alone(
    tmp_path: Path,
) -> None:
    async def play(control: Control) -> None:
        token = await control.token(host="h1")
        for host in ("h2", "h3"):
            assert reason(await control.join(token, "thief", host=host)) is Reason.CONFLICT
        await control.joined(token, "thief", address=THIEF)
        refused = await control.join(token)
        assert THIEF in str(refused)
        await control.node.hosts.revoke("h1", "alice")
        certificate = await control.joined(await control.token(host="h1"))
        assert control.enrollments.problem("h1", certificate) == ""

    run(play, tmp_path)


def test_tokens_expire(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        token, longer = (
            await control.token(host="h1"),
            await control.token(host="h2", expires_in=DAY),
        )
        await control.node.advance(control.node.clock.at + TOKEN_LIFE)  # type: ignore[attr-defined]
        assert reason(await control.join(token)) is Reason.CONFLICT
        assert control.host().node_key == ""
        await control.joined(longer, "h2")

    run(play, tmp_path)


def test_unknown_tokens_and_hosts_are_refused(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        token = await control.token(host="h1")
        replaced, known = token, await control.token(host="h1")
        wrong = f"{known[:-4]}AAAA"
        for text in ("", "garbage", f"fw_00000000_{known[-43:]}", wrong, replaced, known[:-1]):
            assert reason(await control.join(text)) is Reason.UNKNOWN
        assert reason(await control.join(known, host="h9")) is Reason.UNKNOWN
        broken = JoinRequest(token=known, request="garbage")
        assert reason(await control.enrollments.join(broken)) is Reason.INVALID
        assert control.host().node_key == ""

    run(play, tmp_path)


def test_a_token_for_many_is_for_as_many_hosts_with_the_label_once_each(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        selector = parse_labels("rack=r1")
        token = await control.token(label=selector, hosts=1)
        assert reason(await control.join(token, "h3", machine="h3")) is Reason.CONFLICT
        assert reason(await control.join(token, "h3", machine="elsewhere")) is Reason.UNKNOWN
        await control.joined(token, machine="h1")
        assert reason(await control.join(token, "thief", machine="h1")) is Reason.CONFLICT
        used_up = await control.join(token, "h2", machine="h2", address="192.0.2.51")
        assert reason(used_up) is Reason.CONFLICT
        created = await control.create(label=selector, hosts=5)
        assert isinstance(created, CreatedEnrollment)
        assert created.hosts == ("h2",)  # the other one has a node
        await control.joined(created.token.partition(".")[0], "h2", machine="h2")
        refused = await control.create(label=selector, hosts=5)
        assert reason(refused) is Reason.CONFLICT

    run(play, tmp_path)


def test_a_token_for_many_that_was_stolen_is_worth_one_host(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        token = await control.token(label=parse_labels("rack=r1"), hosts=2)
        await control.joined(token, "thief", host="h1", address=THIEF)
        refused = await control.join(token, "thief", host="h2", address=THIEF)
        assert reason(refused) is Reason.CONFLICT
        assert control.host("h2").node_key == ""
        await control.joined(token, "h2", machine="h2")

    run(play, tmp_path)


def test_a_host_that_has_a_node_is_enrolled_again_only_if_an_operator_allows_it(
    tmp_path: Path,
) -> None:
    async def play(control: Control) -> None:
        first = await control.joined(await control.token(host="h1"))
        refused = await control.create(host="h1")
        assert isinstance(refused, Refused)
        assert refused.hint is Hint.ENROLL_AGAIN
        # Until somebody uses it, the node stays.
        token = await control.token(host="h1", again=True)
        assert control.enrollments.problem("h1", first) == ""
        second = await control.joined(token, "h2")
        assert control.enrollments.problem("h1", first)
        assert control.enrollments.problem("h1", second) == ""
        # One that has got its certificate elsewhere.
        token = await control.token(host="h3")
        assert await control.node.hosts.node_joined("h3") is None
        assert reason(await control.join(token, "h3")) is Reason.UNKNOWN
        assert reason(await control.create(host="h3")) is Reason.CONFLICT

    run(play, tmp_path)


def test_only_the_enrolled_key_counts_and_none_after_it_was_revoked(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        enrollments = control.enrollments
        elsewhere = OtherAuthority(tmp_path).issue("forewarn:node:h1").certificate.read_text()
        other = ssl.PEM_cert_to_DER_cert(elsewhere)
        assert enrollments.problem("h1", other) == ""  # as TLS has accepted it
        certificate = await control.joined(await control.token(host="h1"))
        assert enrollments.problem("h2", certificate)  # which was not enrolled with it
        assert enrollments.problem("h1", other)
        renewed = ssl.PEM_cert_to_DER_cert(enrollments.renew("h1", certificate))
        assert renewed != certificate
        assert enrollments.problem("h1", renewed) == ""
        assert enrollments.renew("h1", other) == ""
        await control.node.hosts.revoke("h1", "alice")
        assert control.host().node_key == REVOKED
        for each in (certificate, renewed, other):
            assert enrollments.problem("h1", each)
            assert enrollments.renew("h1", each) == ""

    run(play, tmp_path)


def test_a_host_that_left_the_fleet_has_to_be_enrolled_again(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        certificate = await control.joined(await control.token(host="h3"), "h3")
        fewer = parse(FLEET.replace("  - {name: h3, labels: {rack: r2}}\n", ""))
        for fleet in (fewer, parse(FLEET)):
            assert not isinstance(
                await control.node.fleet_apply.fleet(fleet, by="alice", force=True), Refused
            )
        assert control.enrollments.problem("h3", certificate)

    run(play, tmp_path)


def test_requests_for_tokens_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        label = parse_labels("rack=r1")
        wrong: list[dict[str, Any]] = [
            {},
            {"host": "h1", "label": label, "hosts": 1},
            {"label": label},
            {"host": "h1", "hosts": 2},
            {"label": label, "hosts": -1},
            {"host": "h1", "expires_in": MINUTE - 1},
            {"host": "h1", "expires_in": 24 * 365 * HOUR},
        ]
        for wanted in wrong:
            assert reason(await control.create(**wanted)) is Reason.INVALID
        assert reason(await control.create(host="h9")) is Reason.UNKNOWN
        none = await control.create(label=parse_labels("rack=r9"), hosts=1)
        assert reason(none) is Reason.UNKNOWN
        assert all(host.enrollment is None for host in control.node.store.registry.hosts.values())
        without = Enrollments(control.node.store, control.node.writer)
        assert reason(await without.create(NewEnrollment(host="h1"), "alice")) is Reason.CONFLICT
        joining = JoinRequest(token="", request="")
        assert reason(await without.join(joining)) is Reason.CONFLICT

    run(play, tmp_path)


def test_the_history_says_who_allowed_what_and_from_where_it_was_used(tmp_path: Path) -> None:
    async def play(control: Control) -> None:
        token = await control.token(host="h1")
        id = token.split("_")[1]
        await control.joined(token)
        await control.node.hosts.revoke("h1", "bob")
        created, enrolled, revoked = (await control.history())[-3:]
        assert revoked[:2] == ("host-revoked", "bob")
        assert enrolled == ("host-enrolled", "node", f"token {id}, from 192.0.2.50")
        assert created[:2] == ("host-enrollment", "alice")
        assert id in created[2]

    run(play, tmp_path)
