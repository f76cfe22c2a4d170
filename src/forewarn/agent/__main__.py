"""`python -m forewarn.agent FILE [--dry-run]`: the agent as a process that holds nothing else.

`forewarn agent` becomes this after it has read its options.
"""

from __future__ import annotations

import sys

from forewarn.agent.main import main

main(sys.argv[1:])
