"""Tokens of the control API: create, find, check and revoke them.

They are part of the state, in the same commits and the same history as everything else. The format
of a token and the comparison of secrets is `secret.py`; which role a request needs is decided by
the control API.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from forewarn.core import Group, Refused, Time
from forewarn.core.access import Limit, Role, Token
from forewarn.core.fleet import MAX_NAME
from forewarn.core.refusal import Hint, conflict, invalid, unknown
from forewarn.core.registry import TokenPut, TokenRemoved
from forewarn.core.time import DAY, SECOND, Duration
from forewarn.service.access import secret
from forewarn.service.access.issuer_keys import IssuerKeys, Keys
from forewarn.service.access.oidc import (
    Identity,
    NoAccess,
    Oidc,
    TokenRefused,
    identify,
    is_token,
    key_id,
)
from forewarn.service.access.secret import Secret
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import Commit, States, Store
from forewarn.support import guard
from forewarn.support.suggest import instead_of, nearest
from forewarn.support.text import in_words, listing

MAX_TOKEN_NAME = 64  # characters
MAX_TOKEN_GROUPS = 100  # to which one token can be limited by name
MAX_TOKEN_LIFE: Duration = 3_650 * DAY  # of a token that expires
LOCAL_NAME = "operator"  # in the history: local programs, while there is no token
# Names with another meaning in the history.
RESERVED_NAMES = (
    LOCAL_NAME,
    "driver",
    "start",
    "restore",
)

LONG_LIFE: Duration = 30 * DAY  # of a token whose end somebody has to be reminded of

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,{MAX_TOKEN_NAME - 1}}}", re.ASCII)


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token to be created."""

    name: str
    role: Role
    limit: Limit = Limit()
    expires_in: Duration | None = None
    expires_at: Time | None = None  # or until then


class CreatedToken(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    secret: Secret
    notes: tuple[str, ...] = ()


class Tokens:
    def __init__(self, store: Store, writer: Writer, poll_index: PollIndex) -> None:
        self._store = store
        self._writer = writer
        self._poll_index = poll_index
        self._names: set[str] | None = None  # of valid tokens, in lower case; None: to be collected
        self._issuer_keys: IssuerKeys | None = None
        self.oidc: Oidc | None = None  # None: only tokens of this service are accepted
        store.on_commit(self._on_commit)

    def accept_issuer(self, oidc: Oidc | None, tasks: guard.Tasks) -> None:
        """Accept the tokens of an OIDC issuer from now on, or only our own."""
        before, self.oidc = self.oidc, oidc
        if oidc is None:
            self._issuer_keys = None
        elif before is None or (before.issuer, before.ca) != (oidc.issuer, oidc.ca):
            self._issuer_keys = IssuerKeys(oidc, tasks)
            self._issuer_keys.fetch()

    # Checking.

    @property
    def needed(self) -> bool:
        """Are tokens required? They are as soon as the first one has been created, or if an OIDC
        issuer is configured."""
        return bool(self._store.registry.tokens) or self.oidc is not None

    def opened_by(self, oidc: Oidc | None) -> bool:
        """Would tokens no longer be required with these settings, which they are now?"""
        return self.needed and oidc is None and not self._store.registry.tokens

    @property
    def administered(self) -> bool:
        """Can anybody be an admin, who can create tokens?"""
        return _oidc_admins(self.oidc) or bool(
            _admins(self._store.registry.tokens.values(), self._now())
        )

    @property
    def administered_for(self) -> Duration | None:
        """How long there will be a valid token of an admin; None if one never expires."""
        if _oidc_admins(self.oidc):
            return None
        now = self._now()
        ends = [token.expires_at for token in _admins(self._store.registry.tokens.values(), now)]
        times = [at for at in ends if at is not None]
        return None if len(times) < len(ends) else max(times, default=now) - now

    def of(self, text: str) -> Token | None:
        """Return the valid token with this text. An unknown id and a wrong secret take the same
        time."""
        token = self._store.registry.tokens.get(secret.id_of(text))
        if not secret.same(text, token.digest if token else None):
            return None
        return token if token is not None and token.valid(self._now()) else None

    async def identity(self, text: str) -> Identity | None:
        """Return whom a token of the OIDC issuer stands for; None if it has another form, or no
        issuer is configured. Raises TokenRefused, NoAccess and IssuerUnavailable."""
        oidc, keys = self.oidc, self._issuer_keys
        if oidc is None or keys is None or not is_token(text):
            return None
        await keys.current()  # before anything is read that could not be verified
        key = await keys.find(key_id(oidc, text))
        if key is None:
            raise TokenRefused("the issuer has no key with which it could be signed")
        identity = identify(oidc, text, key)
        if problem := self._actor_problem(identity.name):
            raise NoAccess(problem)
        return identity

    async def issuer(self) -> tuple[Oidc, Keys] | None:
        """Return the settings of the OIDC issuer and what it publishes; None if browsers are not
        sent there to log in. Raises IssuerUnavailable."""
        oidc, keys = self.oidc, self._issuer_keys
        return (
            None
            if oidc is None or keys is None or not oidc.client_id
            else (oidc, await keys.current())
        )

    def identity_valid(self, identity: Identity) -> bool:
        """Has a token of the issuer not expired, and are the settings still the same?"""
        return identity.config is self.oidc and guard.wall_us() / SECOND < identity.expires_at

    def _actor_problem(self, name: str) -> str:
        """Return why nobody may act under this name in the history, or ""."""
        if self._names is None:
            now = self._now()
            tokens = self._store.registry.tokens.values()
            self._names = {token.name.lower() for token in tokens if token.valid(now)}
        if name.lower() in RESERVED_NAMES or secret.is_id(name):
            return f"'{name}' has another meaning in the history; use another claim for names"
        if name.lower() in self._names:
            return f"a token of this service has the name '{name}'; revoke it, or use another claim"
        return ""

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        for put in commit.puts:
            if isinstance(put, TokenPut | TokenRemoved):
                self._names = None

    def used(self, token: Token) -> None:
        """Note that a token was used."""
        self._poll_index.used(token.id, self._now())

    def valid(self, id: str) -> bool:
        """Is the token with this id still valid?"""
        token = self._store.registry.tokens.get(id)
        return token is not None and token.valid(self._now())

    def allows(self, limit: Limit, group: str) -> bool:
        """Does a limit allow a group, by the labels that the group has now, or had last?"""
        state = self._store.groups.get(group)
        return limit.allows(group, state.labels if state else {})

    def allowed(self, limit: Limit) -> list[str]:
        """Return all present and former groups that a limit allows."""
        return [name for name, g in self._store.groups.items() if limit.allows(name, g.labels)]

    @property
    def next_expiry(self) -> Time | None:
        """When the next valid token expires. Those that last less than LONG_LIFE are left out:
        whoever uses them is used to renewing them."""
        now = self._now()
        return min(
            (
                token.expires_at
                for token in self._store.registry.tokens.values()
                if token.expires_at is not None
                and token.valid(now)
                and token.expires_at - token.created_at >= LONG_LIFE
            ),
            default=None,
        )

    # Finding, creating, revoking.

    def last_used(self, id: str) -> Time | None:
        return self._poll_index.last_used(id)

    def all(self) -> list[Token]:
        """Return all tokens, the newest last."""
        tokens = self._store.registry.tokens.values()
        return sorted(tokens, key=lambda token: (token.created_at, token.id))

    def find(self, id_or_name: str) -> Token | Refused:
        """Find a token by its id, or by its name, which only one valid token has."""
        tokens = self._store.registry.tokens
        if token := tokens.get(id_or_name):
            return token
        named = [token for token in tokens.values() if token.name == id_or_name]
        valid = [token for token in named if token.valid(self._now())]
        if len(valid or named) == 1:
            return (valid or named)[0]
        if named:
            ids = listing([token.id for token in named])
            return invalid(
                f"'{secret.hidden(id_or_name)}' is ambiguous; it could be {ids}: pass an id"
            )
        names = [name for token in tokens.values() for name in (token.name, token.id)]
        shown = secret.hidden(id_or_name[:MAX_TOKEN_NAME])
        if not names:
            return unknown(f"no token '{shown}'; there is none yet", hint=Hint.CREATE_TOKEN)
        suggestion = nearest(id_or_name, names) or ""
        message = f"no token '{shown}'; {instead_of(id_or_name, names)}"
        return unknown(message, suggestion=suggestion)

    async def create(self, wanted: NewToken, by: str) -> CreatedToken | Refused:
        created: list[CreatedToken] = []

        def plan(states: States) -> CommitPlan | Refused:
            created.clear()
            tokens, now = states.registry.tokens, self._now()
            expires = _expiry(wanted, now)
            if isinstance(expires, Refused):
                return expires
            if refused := _token_problem(wanted) or _name_problem(wanted, tokens, states, now):
                return refused
            if wanted.role is not Role.ADMIN and not self.administered:
                return conflict(
                    "the first token must be an admin's: as soon as there is one, every request"
                    " needs a token, and only an admin can create another one",
                    hint=Hint.CREATE_ADMIN_TOKEN,
                )
            id = secret.new_id()
            while id in tokens:
                id = secret.new_id()
            shown = secret.new(id)
            token = Token(
                id=id,
                name=wanted.name,
                role=wanted.role,
                digest=secret.digest(shown.text),
                created_at=now,
                created_by=by,
                limit=wanted.limit,
                expires_at=expires,
            )
            created.append(CreatedToken(token=token, secret=shown, notes=_notes(wanted, states)))
            return CommitPlan(puts=[TokenPut(token, "created", by)])

        outcome = await self._writer.commit(plan)
        return outcome if isinstance(outcome, Refused) else created[0]

    async def revoke(self, id_or_name: str, by: str, *, force: bool = False) -> Token | Refused:
        """Make a token invalid. The last one of an admin is only revoked with `force`."""
        existing = self.find(id_or_name)
        if isinstance(existing, Refused):
            return existing

        def plan(states: States) -> CommitPlan | Refused:
            tokens, now = states.registry.tokens, self._now()
            token = tokens.get(existing.id)
            if token is None:
                return unknown(f"token {existing.id} has already been removed")
            if token.revoked_at is not None:
                return conflict(
                    f"token {token.id} ({token.name}) was already revoked, by {token.revoked_by}"
                )
            if [admin.id for admin in _admins(tokens.values(), now)] == [token.id] and not force:
                return conflict(
                    f"token {token.id} ({token.name}) is the last admin token: without it,"
                    " tokens can be created only with the state file, while no service runs. Create"
                    " another one first",
                    hint=Hint.FORCE,
                )
            revoked = msgspec.structs.replace(token, revoked_at=now, revoked_by=by)
            return CommitPlan(puts=[TokenPut(revoked, "revoked", by)])

        outcome = await self._writer.commit(plan)
        return outcome if isinstance(outcome, Refused) else self._store.registry.tokens[existing.id]

    def _now(self) -> Time:
        return self._writer.now().at


def _admins(tokens: Iterable[Token], now: Time) -> list[Token]:
    """Return the valid tokens of admins; they are never limited."""
    return [token for token in tokens if token.role is Role.ADMIN and token.valid(now)]


def _oidc_admins(oidc: Oidc | None) -> bool:
    return oidc is not None and oidc.has_admins


def _expiry(wanted: NewToken, now: Time) -> Time | Refused | None:
    if wanted.expires_in is not None and wanted.expires_at is not None:
        return invalid("give either how long the token lasts or when it expires, not both")
    at = wanted.expires_at if wanted.expires_in is None else now + wanted.expires_in
    if at is not None and not now < at <= now + MAX_TOKEN_LIFE:
        return invalid(
            f"a token must expire within {in_words(MAX_TOKEN_LIFE)} from now, or never;"
            " write for example 90d"
        )
    return at


def _token_problem(wanted: NewToken) -> Refused | None:
    if not _NAME.fullmatch(wanted.name):
        return invalid(
            f"a token's name must have 1 to {MAX_TOKEN_NAME} letters, digits, '.', '_', '@' or '-',"
            " and begin with a letter or digit"
        )
    if secret.hidden(wanted.name) != wanted.name:
        return invalid("that name is a token itself; name the token after its user")
    if wanted.name.lower() in RESERVED_NAMES:
        return invalid(
            f"'{wanted.name}' has another meaning in the history; name the token after its user"
        )
    if secret.is_id(wanted.name):
        return invalid(
            f"'{wanted.name}' has the form of a token's id and could be mistaken for one; name the"
            " token after its user"
        )
    if wanted.role is Role.ADMIN and not wanted.limit.none:
        return invalid(
            "a token of an admin cannot be limited, because it can create any token; leave the"
            " limit out, or choose another role"
        )
    if wanted.role is Role.TENANT and wanted.limit.none:
        return invalid(
            "a tenant's token must be limited to the groups of the tenant; name them, or give a"
            " label that they have"
        )
    if len(wanted.limit.groups) > MAX_TOKEN_GROUPS:
        return invalid(
            f"a token can be limited to at most {MAX_TOKEN_GROUPS} groups by name; use a label"
        )
    if any(not group.strip() or len(group) > MAX_NAME for group in wanted.limit.groups):
        return invalid(
            f"the name of a group that limits a token must have 1 to {MAX_NAME} characters"
        )
    return None


def _name_problem(
    wanted: NewToken, tokens: Mapping[str, Token], states: Mapping[str, Group], now: Time
) -> Refused | None:
    name = wanted.name.lower()  # names that differ only in case would be confused
    for token in tokens.values():
        if token.name.lower() == name and token.valid(now):
            return conflict(
                f"there is a token of that name, {token.id} ({token.name}); choose another name, or"
                " revoke it first",
                hint=Hint.REVOKE_TOKEN,
                about=token.id,
            )
    machines = (machine.name for group in states.values() for machine in group.machines)
    if machine := next((other for other in machines if other.lower() == name), None):
        return conflict(
            f"a machine is called '{machine}', and its approvals are in the history under that"
            " name; name the token after its user"
        )
    return None


def _notes(wanted: NewToken, states: Mapping[str, Group]) -> tuple[str, ...]:
    """Return notes about groups in the limit that do not exist: they may be added later, or be a
    typing error."""
    existing = [name for name, group in states.items() if group.machines]
    missing = [group for group in wanted.limit.groups if group not in existing]
    return tuple(
        f"there is no group '{name}' now; {_suggestion(name, existing)}" for name in missing
    )


def _suggestion(name: str, existing: Sequence[str]) -> str:
    return instead_of(name, existing) if existing else "there are no groups yet"
