"""The agent as it is where the endpoint offers no long-poll, as Azure's: one poll a second.

python -m bench.agent.polling CONFIG
"""

from __future__ import annotations

import functools
import sys

from forewarn.agent import main as agent
from forewarn.client.async_client import AsyncClient

if __name__ == "__main__":
    vars(agent)["AsyncClient"] = functools.partial(AsyncClient, long_poll=False)
    agent.main(sys.argv[1:])
