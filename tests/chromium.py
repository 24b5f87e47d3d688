"""A headless Chromium: Debian's, driven with Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from debian import install

WANTED = "FAIRLAYER_INSTALL_CHROMIUM"  # set to 1, Debian's package is installed where it is missing


class NoBrowserError(Exception):
    """No browser can be had here; the message says why."""


@contextmanager
def running_browser() -> Iterator[Any]:
    """A browser, which ends with the context."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise NoBrowserError("playwright is not installed (pip install playwright)") from error
    executable = _executable()
    with sync_playwright() as playwright:
        try:
            # Chromium's own sandbox does not run as root, where containers run; the pages are ours.
            browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        except Error as error:
            raise NoBrowserError(f"{executable} did not start: {str(error)[:500]}") from error
        try:
            yield browser
        finally:
            browser.close()


def _executable() -> str:
    found = shutil.which("chromium")
    if found is None and os.environ.get(WANTED) == "1":
        install("chromium", "fonts-liberation")
        found = shutil.which("chromium")
    if found is None:
        raise NoBrowserError(f"no Chromium is installed (apt-get install chromium, or set {WANTED}=1)")
    return found
