"""`Service(arm=True)`: what Azure's SDKs are given."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.support import extras, guard
from forewarn.testing import Arm, RefusedError, Service
from helpers.token_api import Answer, Api

VERSION = "?api-version=2024-07-01"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(arm=True) as service:
        service.machine("jumpbox")
        yield service


def api(arm: Arm) -> Api:
    token = arm.credential.get_token(f"{arm.url}/.default").token
    return Api(arm.url, token, tls=ssl.create_default_context(cafile=arm.ca))


def machine(arm: Arm, verb: str = "") -> str:
    place = f"/subscriptions/{arm.subscription}/resourceGroups/{arm.resource_group}"
    return f"{place}/providers/Microsoft.Compute/virtualMachines/jumpbox{verb}{VERSION}"


def test_an_operation_progresses_with_the_clock(service: Service) -> None:
    asks, arm = api(service.arm), service.arm
    assert asks.get(machine(arm)).json()["name"] == "jumpbox"
    started = asks.call("POST", machine(arm, "/restart"))
    assert started.status == 202
    poll = started.headers["azure-asyncoperation"].removeprefix(arm.url)

    def status() -> str:
        answer: Answer = asks.get(poll)
        return str(answer.json()["status"])

    assert status() == "InProgress"
    service.clock.advance("15m")
    assert status() == "InProgress"  # the machine restarts
    service.clock.advance("10m")
    assert status() == "Succeeded"


def test_arm_answers_only_with_its_own_certificate_and_only_while_the_service_runs() -> None:
    with Service(arm=True) as service:
        arm = service.arm
        strangers = Api(arm.url, "x", tls=ssl.create_default_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            strangers.get(machine(arm))
        assert arm.ca.exists()
    assert not arm.ca.exists()
    assert not arm.ca.parent.exists()
    with pytest.raises(OSError, match=r"refused|10061"):
        strangers.get(machine(arm))


def test_credentials_have_the_form_of_azure_core(service: Service) -> None:
    sync, later = service.arm.credential, service.arm.async_credential

    async def awaited() -> list[Any]:
        async with later:
            got = await later.get_token("a/.default", claims="c", tenant_id="t", enable_cae=True)
            return [got, await later.get_token_info("a/.default", options={"enable_cae": True})]

    tokens = [
        sync.get_token("a/.default", "b/.default", claims="c", enable_cae=True),
        sync.get_token_info("a/.default", options={"claims": "c"}),
        *asyncio.run(awaited()),
    ]
    now = guard.wall_us() // 1_000_000
    for token in tokens:
        assert token.expires_on > now
        assert (token.token, token.token_type, token.refresh_on) == ("local", "Bearer", None)


def test_arm_of_a_service_without_it_is_refused_with_how_to_enable_it(service: Service) -> None:
    del service
    with Service() as other, pytest.raises(RefusedError, match=r"use Service\(arm=True\)"):
        _ = other.arm
    with pytest.raises(RefusedError, match="has not started"):
        _ = Service(arm=True).arm


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "installed", lambda extra: extra != "server")
    with pytest.raises(extras.MissingExtraError, match=r"arm=True\) needs .*'forewarn\[server\]'"):
        Service(arm=True)
