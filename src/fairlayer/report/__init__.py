"""What a reader gets from an `Audit`: one self-contained HTML page (`page.py`) and a model card (`card.py`).

    Audit  ->  summary (sentences), plots (marks and tables)  ->  templates  ->  page, card

Nothing here measures: every figure is in the audit. Names that come from data stay as they are until text is written;
there the template environments escape every value, for HTML or for Markdown.
"""

from fairlayer.report.card import write_card
from fairlayer.report.page import write_html

__all__ = ["write_card", "write_html"]
