#!/usr/bin/env python3
"""A client of the pair: it writes number after number to whichever of the two is the primary. A
number that is not acknowledged is written again, to whoever is the primary by then.

    writer.py HOST:PORT HOST:PORT      a line for each write that was acknowledged: its number, by
                                       whom, and when; ends when it is told to (SIGTERM)
"""

import contextlib
import signal
import socket
import sys
import threading
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn

EVERY = 0.01  # seconds between two writes
PATIENCE = 0.5  # seconds for an answer; then it looks for the primary anew

stop = threading.Event()


def main() -> None:
    number, primary = 1, None
    while not stop.wait(EVERY):
        try:
            primary = primary or find()
            if ask(primary, "SADD", "numbers", str(number)) not in (b":1", b":0"):
                raise ConnectionError("it is not the primary any more")
        except OSError:
            primary = None
        else:
            host, port = primary.getpeername()
            sys.stdout.write(f"{number} {host}:{port} {time.monotonic():.3f}\n")
            sys.stdout.flush()
            number += 1


def find() -> socket.socket:
    """A connection to the one that says that it is the primary."""
    for address in sys.argv[1:]:
        with contextlib.suppress(OSError):
            host, _, port = address.partition(":")
            there = socket.create_connection((host, int(port)), PATIENCE)
            if ask(there, "ROLE").startswith(b"*3"):  # what a primary answers first: three things
                return there
            there.close()
    raise ConnectionError("there is no primary")


def ask(there: socket.socket, *words: str) -> bytes:
    """The first line of the answer, in Redis' own protocol."""
    there.settimeout(PATIENCE)
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    there.sendall("".join(parts).encode())
    answer = b""
    while b"\r\n" not in answer:
        if not (part := there.recv(4096)):
            raise ConnectionError("it has hung up")
        answer += part
    return answer.partition(b"\r\n")[0]


signal.signal(signal.SIGTERM, lambda *_: stop.set())
main()
