"""A peer: the loop that one would write in Python without a library. It handles nothing.

python -I loop.py URL
"""

from __future__ import annotations

import json
import sys
import time  # noqa: TID251 - a program that stands for a user's own
import urllib.error
import urllib.request


def main(url: str) -> None:
    tag = ""
    while True:
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        if tag:
            request.add_header("If-None-Match", tag)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                tag = answer.headers.get("ETag", "")
                json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 304:
                raise
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1])
