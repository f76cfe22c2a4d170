"""`python -m forewarn.agent FILE [--dry-run]`: the agent as a process that imports nothing else.

`forewarn agent` replaces itself with this program after it has parsed its options.
"""

from __future__ import annotations

import sys

from forewarn.agent.main import main

main(sys.argv[1:])
