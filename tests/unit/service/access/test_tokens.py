"""Tokens: made once and shown once, known again, revoked, forgotten; and their secrets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forewarn.control.client import client
from forewarn.control.client.connection import ServiceAddress
from forewarn.core import Refused
from forewarn.core.access import Limit, Role, Token
from forewarn.core.labels import parse
from forewarn.core.refusal import Hint
from forewarn.core.time import DAY, MINUTE
from forewarn.service.access import secret
from forewarn.service.access.tokens import CreatedToken, NewToken
from forewarn.store.memory import Disk, MemoryStore
from forewarn.testing import Service

FLEET = """
groups:
  - name: web
    kind: availability-set
    labels: {tier: web}
    machines: [{name: web-0}, {name: web-1}]
  - {name: sql, kind: availability-set, labels: {tier: sql}, machines: [{name: sql-0}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


def created(
    service: Service, name: str = "alice", role: Role = Role.ADMIN, **how: Any
) -> CreatedToken:
    done = asked(service, name, role, **how)
    assert isinstance(done, CreatedToken), done
    return done


def asked(
    service: Service, name: str = "alice", role: Role = Role.ADMIN, **how: Any
) -> CreatedToken | Refused:
    wanted = NewToken(name=name, role=role, **how)
    return service._session.run(service._session.node.tokens.create(wanted, by="operator"))


def revoked(service: Service, output: str, *, force: bool = False) -> Token | Refused:
    return service._session.run(service._session.node.tokens.revoke(output, "bob", force=force))


def says(done: object) -> str:
    return refusal(done).message


def refusal(done: object) -> Refused:
    assert isinstance(done, Refused), done
    return done


def test_a_secret_has_256_bits_and_a_form_that_scanners_know() -> None:
    made = [secret.new(secret.new_id()) for _ in range(50)]
    assert len({one.text for one in made}) == 50
    for one in made:
        assert re.fullmatch(r"fw_[0-9a-f]{8}_[A-Za-z0-9]{43}", one.text)
        assert secret.id_of(one.text) == one.id
    assert 62**secret.SECRET_LENGTH >= 2**256


def test_only_the_same_secret_matches_a_digest() -> None:
    one = secret.new("0123abcd")
    known = secret.digest(one.text)
    assert secret.same(one.text, known)
    assert not secret.same(one.text[:-1] + ("a" if one.text[-1] != "a" else "b"), known)
    assert not secret.same("", known)
    assert not secret.same(one.text, None)
    assert not secret.same("fw_0123abcd_", secret.digest("something else"))


@pytest.mark.parametrize(
    "text",
    ["", "fw_", "fw_0123abcd_", "fw_0123abcd_short", "Fw_0123abcd_" + "a" * 43, "x" * 500, "é"],
)
def test_a_text_that_is_not_a_token_has_no_id(text: str) -> None:
    assert secret.id_of(text) == ""


def test_secrets_are_hidden_wherever_they_are_cut() -> None:
    text = secret.new("0123abcd").text
    assert secret.hidden(f"no machine '{text}'; sorry") == "no machine 'fw_0123abcd_…'; sorry"
    assert secret.hidden(text[:30]) == "fw_0123abcd_…"
    assert secret.hidden("fw_bridge and fw_0123abcd") == "fw_bridge and fw_0123abcd"
    assert secret.hidden_bytes(text.encode() * 2).count(b"fw_0123abcd_...") >= 1
    assert text[12:] not in repr(secret.new("0123abcd")) + repr(secret.Secret("a", text))


def test_a_token_is_known_by_its_secret_only(service: Service) -> None:
    known = service._session.node.tokens
    assert not known.needed
    made = created(service)
    assert known.needed
    assert known.of(made.secret.text) == made.token
    assert known.of(made.secret.text[:-1]) is None
    assert known.of(secret.new(made.token.id).text) is None
    assert known.of(secret.new("00000000").text) is None
    assert known.of("") is None


def test_only_a_digest_is_kept() -> None:
    disk = Disk()
    with Service(FLEET, store=MemoryStore(disk)) as service:
        made = created(service)
    letters = made.secret.text.rpartition("_")[2]
    assert letters not in repr(disk.commits) + repr(disk.history) + repr(disk.registry)
    assert made.token.digest in repr(disk.commits)
    assert letters not in repr(made)
    assert letters not in msgspec.json.encode(made.token).decode()


def test_a_token_ends_when_it_expires(service: Service) -> None:
    made = created(service, expires_in=90 * DAY)
    service.clock.advance("89d23h59m59s")
    assert service._session.node.tokens.of(made.secret.text) is not None
    service.clock.advance("1s")
    assert service._session.node.tokens.of(made.secret.text) is None
    assert service._session.node.tokens.needed  # nobody is let in without, although none is left


def test_a_token_ends_when_it_is_revoked(service: Service) -> None:
    created(service)
    made = created(service, "bot", Role.VIEWER)
    done = revoked(service, "bot")
    assert isinstance(done, Token)
    assert (done.id, done.revoked_by) == (made.token.id, "bob")
    assert service._session.node.tokens.of(made.secret.text) is None
    assert f"{made.token.id} (bot) was already" in says(revoked(service, made.token.id))
    assert "by bob" in says(revoked(service, made.token.id))


def test_the_last_admin_token_is_revoked_only_by_force(service: Service) -> None:
    first = created(service)
    assert refusal(revoked(service, "alice")).hint is Hint.FORCE
    assert service._session.node.tokens.of(first.secret.text) is not None
    created(service, "carol")
    assert isinstance(revoked(service, "alice"), Token)
    assert isinstance(revoked(service, "carol", force=True), Token)
    assert not service._session.node.tokens.administered


def test_an_admin_that_expires_is_the_last_one_only_while_it_is_valid(service: Service) -> None:
    created(service, expires_in=DAY)
    created(service, "carol")
    service.clock.advance("1d")
    assert refusal(revoked(service, "carol")).hint is Hint.FORCE


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_the_first_token_has_to_be_an_admins(service: Service, role: Role) -> None:
    assert refusal(asked(service, "bot", role)).hint is Hint.CREATE_ADMIN_TOKEN
    assert not service._session.node.tokens.needed


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"name": ""}, "1 to 64"),
        ({"name": "a b"}, "1 to 64"),
        ({"name": "-a"}, "1 to 64"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": "Operator"}, "'Operator' has another meaning"),
        ({"name": "driver"}, "'driver' has another meaning"),
        ({"name": "web-0"}, "machine is called 'web-0'"),
        ({"name": "fw_0123abcd_" + "a" * 43}, "a token itself"),
        ({"limit": Limit(groups=("web",))}, "cannot be limited"),
        ({"limit": Limit(labels=parse("tier=web"))}, "cannot be limited"),
        ({"role": Role.VIEWER, "limit": Limit(groups=("g",) * 101)}, "at most 100 groups"),
        ({"role": Role.VIEWER, "limit": Limit(groups=("",))}, "name of a group"),
        ({"expires_in": 0}, "within 3650 d"),
        ({"expires_in": -MINUTE}, "within 3650 d"),
        ({"expires_in": 3_651 * DAY}, "within 3650 d"),
        ({"expires_at": 1}, "within 3650 d"),
        ({"expires_in": DAY, "expires_at": 1}, "not both"),
    ],
)
def test_an_invalid_token_is_refused_and_changes_nothing(
    service: Service, how: dict[str, Any], complaint: str
) -> None:
    created(service)
    before = service._session.node.store.seq
    assert complaint in says(asked(service, **{"name": "bot", **how}))
    assert service._session.node.store.seq == before


def test_no_two_valid_tokens_have_the_same_name(service: Service) -> None:
    created(service)
    created(service, "bot", Role.VIEWER)
    assert refusal(asked(service, "bot", Role.VIEWER)).hint is Hint.REVOKE_TOKEN
    assert isinstance(revoked(service, "bot"), Token)
    again = created(service, "bot", Role.VIEWER)
    found = service._session.node.tokens.find("bot")
    assert isinstance(found, Token)
    assert found.id == again.token.id  # the valid one, of the two that are called so


def test_one_of_two_requests_for_the_same_name_is_refused(service: Service) -> None:
    created(service)
    wanted = NewToken(name="bot", role=Role.VIEWER)

    async def both() -> list[CreatedToken | Refused]:
        make = service._session.node.tokens.create
        return list(await asyncio.gather(*(make(wanted, "operator") for _ in range(2))))

    done = service._session.run(both())
    assert sorted(isinstance(one, Refused) for one in done) == [False, True]


def test_an_unknown_token_is_refused_with_the_most_similar_name(service: Service) -> None:
    assert refusal(revoked(service, "bot")).hint is Hint.CREATE_TOKEN
    created(service)
    assert refusal(revoked(service, "alicf")).suggestion == "alice"
    text = secret.new("0123abcd").text
    assert text[12:] not in says(revoked(service, text))


def test_a_limit_to_a_group_that_does_not_exist_is_noted(service: Service) -> None:
    created(service)
    made = created(service, "bot", Role.VIEWER, limit=Limit(groups=("wbe",)))
    (note,) = made.notes
    assert "'wbe'" in note
    assert "'web'" in note


def test_a_limit_goes_by_the_labels_that_a_group_has_now(service: Service) -> None:
    limit = Limit(labels=parse("tier=web"))
    known = service._session.node.tokens
    assert [known.allows(limit, name) for name in ("web", "sql", "nowhere")] == [True, False, False]
    service._session.run(
        service._session.node.fleet_apply.text(FLEET.replace("tier: sql", "tier: web"), by="test")
    )
    assert known.allows(limit, "sql")
    assert known.allowed(limit) == ["web", "sql"]


def test_creating_and_revoking_a_token_is_in_the_history(service: Service) -> None:
    created(service)
    made = created(service, "bot", Role.OPERATOR)
    revoked(service, "bot")
    page = service._session.run(service._session.node.store.history(_tokens()))
    assert [(r.what.value, r.by, r.cause, r.note) for r in page][-2:] == [
        ("token-created", "operator", made.token.id, "bot (operator)"),
        ("token-revoked", "bob", made.token.id, "bot (operator)"),
    ]


def test_the_last_use_of_a_token_is_known_after_a_restart() -> None:
    disk = Disk()
    with Service(FLEET, store=MemoryStore(disk)) as service:
        made = created(service)
        assert service._session.node.tokens.last_used(made.token.id) is None
        service.clock.advance("5m")
        service._session.node.tokens.used(made.token)
        used = service._session.node.tokens.last_used(made.token.id)
        assert used == service._session.node.writer.now().at
    with Service(FLEET, store=MemoryStore(disk)) as service:
        assert service._session.node.tokens.last_used(made.token.id) == used
        assert service._session.node.tokens.of(made.secret.text) is not None


def test_tokens_that_are_long_over_are_forgotten_but_never_the_last(service: Service) -> None:
    created(service, expires_in=DAY)
    created(service, "bot", Role.VIEWER)
    revoked(service, "bot")
    service.clock.advance("95d")
    service._session.run(service._session.node.history.prune())
    left = service._session.node.tokens.all()
    assert [token.name for token in left] == ["alice"]
    assert service._session.node.tokens.needed


def test_tokens_are_listed_page_by_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "TOKENS_PAGE", "40")
    with Service(FLEET, sockets=True) as service:
        admin = created(service).secret.text
        make = service._session.node.tokens.create

        async def many() -> None:
            for n in range(120):
                wanted = NewToken(name=f"team-{n}", role=Role.VIEWER)
                assert isinstance(await make(wanted, "alice"), CreatedToken)

        service._session.run(many())
        address = ServiceAddress(service.control_url, admin)
        names = [token.name for token in client.ControlClient(address).tokens()]
        assert sorted(names) == sorted(["alice", *(f"team-{n}" for n in range(120))])


def _tokens() -> Any:
    from forewarn.core.history import RecordKind
    from forewarn.store.port import HistoryQuery

    return HistoryQuery(what=(RecordKind.TOKEN_CREATED, RecordKind.TOKEN_REVOKED))


def test_names_that_could_be_mistaken_for_others_are_refused(service: Service) -> None:
    made = created(service, "alice")
    taken = refusal(asked(service, "Alice"))
    assert (taken.hint, taken.about) == (Hint.REVOKE_TOKEN, made.token.id)
    assert "machine is called 'web-0'" in says(asked(service, "WEB-0"))
    for name in (made.token.id, "0a1b2c3d", "DEADBEEF"):
        assert f"'{name}' has the form" in says(asked(service, name))
    assert created(service, "0a1b2c3d4").token.name == "0a1b2c3d4"


def test_administered_for_is_how_long_there_is_a_valid_admin_token(service: Service) -> None:
    tokens = service._session.node.tokens
    created(service, "bot", expires_in=3 * DAY)
    assert tokens.administered_for == 3 * DAY
    created(service, "later", expires_in=5 * DAY)
    assert tokens.administered_for == 5 * DAY
    created(service, "alice")
    assert tokens.administered_for is None
