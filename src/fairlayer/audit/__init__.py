"""`audit`: are these predictions fair? Gaps, intervals, verdicts, and what stands behind them.

    samples | file  ->  tally (cells and their sums)  ->  findings, groups  ->  Audit

Arrays (`samples.py`) and files (`files.py`) come to the same tally; all that follows looks at nothing else, so that
both give the same result, and a file may be larger than memory.
"""

from fairlayer.audit.audit import audit
from fairlayer.audit.result import Audit, Finding, Group, Verdict

__all__ = ["Audit", "Finding", "Group", "Verdict", "audit"]
