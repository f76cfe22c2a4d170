"""The judge: reads recorded traffic and reports which promises of the service were broken.

It is derived from what the endpoint promises and shares no code with the service, so that the two
cannot be wrong together. It reports only what the recording proves: exchanges that overlap have no
order, and what was not seen may have been correct.
"""

from .check_trace import judge, judge_files
from .findings import Finding, Judgement
from .rules import RULES

__all__ = ["RULES", "Finding", "Judgement", "judge", "judge_files"]
