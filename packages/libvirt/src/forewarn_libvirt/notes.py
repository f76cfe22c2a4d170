"""What the driver writes into a domain's metadata, so that it outlives libvirt and the driver.

The live definition of a running domain and its inactive one have a note each. An inactive one
becomes the live one when the domain is started: a note that says `begun` live and `over` inactive
says of itself that a power cycle has happened, whoever has caused it and whatever was restarted.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import libvirt
import msgspec

EVENT = "urn:forewarn:event:1"
_PREFIX = "forewarn-event"
LIVE, INACTIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
BEGUN, FROZEN, OVER = "begun", "frozen", "over"  # stages


class Note(msgspec.Struct, frozen=True, rename={"event": "id"}):
    """How far an event is with one domain."""

    event: str = ""
    fence: int = 0
    stage: str = ""
    target: str = ""  # the host that it moves to
    since: int = 0  # when this stage began, by the service's clock, in microseconds
    domain: int = -1  # the id that the domain had before


def read(domain: Any, flag: int) -> Note:
    """Return a domain's note, an empty one if it has none or one that cannot be read."""
    try:
        text = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, EVENT, flag)
        return msgspec.convert(ElementTree.fromstring(text).attrib, Note, strict=False)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            raise
    except (ElementTree.ParseError, msgspec.ValidationError):
        pass  # somebody has changed it
    return Note()


def write(domain: Any, note: Note, flags: int) -> None:
    domain.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT, _text(note, "event"), _PREFIX, EVENT, flags
    )


def with_note(definition: str, note: Note) -> str:
    """Return a definition of a domain with this note instead of the one that it may have."""
    domain = ElementTree.fromstring(definition)
    metadata = domain.find("metadata")
    if metadata is None:
        metadata = ElementTree.SubElement(domain, "metadata")
    for old in metadata.findall(f"{{{EVENT}}}event"):
        metadata.remove(old)
    metadata.append(ElementTree.fromstring(_text(note, f"{{{EVENT}}}event")))
    return ElementTree.tostring(domain, encoding="unicode")


def _text(note: Note, tag: str) -> str:
    fields = {name: str(value) for name, value in msgspec.to_builtins(note).items()}
    return ElementTree.tostring(ElementTree.Element(tag, fields), encoding="unicode")
