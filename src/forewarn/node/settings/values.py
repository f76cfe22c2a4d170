"""What one setting means by itself, or why it cannot be used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.node.config import Address, Tls
from forewarn.node.settings.model import Settings, SettingsError
from forewarn.support.program import ProgramUnusable, find_program
from forewarn.support.text import in_words, parse_duration

MAX_GUEST_ADDRESSES = 8  # in `metadata`; with workers, each worker opens a socket for each


def gates(said: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The commands of gates by name, each a program that is there."""
    made = {}
    for name, words in said.items():
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", name, re.ASCII):
            raise SettingsError(
                f"gate '{name[:80]}': a gate is named with letters, digits, '.', '_' and '-'"
            )
        try:
            made[name] = tuple(find_program(list(words)))
        except ProgramUnusable as error:
            raise SettingsError(f"gate '{name}': {error}") from error
    return made


def tls(settings: Settings) -> Tls | None:
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise SettingsError("tls_certificate and tls_key belong together; say both, or none")
    if not settings.tls_certificate:
        return None
    return Tls(Path(settings.tls_certificate), Path(settings.tls_key))


def address(key: str, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}, for example 127.0.0.1:8169") from error


def guest_addresses(texts: Sequence[str]) -> tuple[Address, ...]:
    """Read the addresses where guests ask: at least one, and none of them twice."""
    if not 1 <= len(texts) <= MAX_GUEST_ADDRESSES:
        raise SettingsError(
            f"metadata lists {len(texts)} addresses; give 1 to {MAX_GUEST_ADDRESSES}, for example"
            ' ["169.254.169.254:80", "169.254.169.254:8080"]'
        )
    addresses = tuple(address("metadata", text) for text in texts)
    for first, second in combinations(addresses, 2):
        if collide(first, second):
            problem = "is listed twice" if first == second else f"overlaps {first}"
            raise SettingsError(f"metadata: {second} {problem}; give each address once")
    return addresses


def collide(one: Address, other: Address) -> bool:
    """Would whoever listens on one keep others from listening on the other?"""
    if one.port != other.port or not one.port:
        return False
    first, second = (_canonical(address.host) for address in (one, other))
    if first == second or "::" in (first, second):
        return True
    return "0.0.0.0" in (first, second) and ":" not in first + second


def _canonical(host: str) -> str:
    """Return the host as it is bound, since one address can be written in several ways."""
    try:
        return str(ip_address("127.0.0.1" if host == "localhost" else host))
    except ValueError:
        return host


def duration(key: str, text: str, least: int = 0) -> int:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error
    if found < least:
        raise SettingsError(f"{key} = '{text}': it is at least {in_words(least)}")
    return found


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
