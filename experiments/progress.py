"""A progress bar, by tqdm where it is installed, otherwise a line per unit."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """Shows how many units are done."""

    def __init__(self, what: str, total: int, done: int):
        self.what, self.total, self.done = what, total, done
        self.bar: Any = None
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self.bar = tqdm(total=total, initial=done, desc=what, unit="unit", file=sys.stderr)

    def show(self, key: str) -> None:
        """One more unit is done."""
        self.done += 1
        if self.bar is not None:
            self.bar.set_postfix_str(key, refresh=False)
            self.bar.update()
        else:
            print(f"{self.what}: {self.done} of {self.total}, {key}", file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
