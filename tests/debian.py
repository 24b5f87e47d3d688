"""Debian's packages, for tests that need a server or a browser."""

import os
import shutil
import subprocess
from functools import cache


@cache
def install(*packages: str) -> None:
    """Try once, where that is allowed. What went wrong is told by the absence of what was wanted."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    patiently = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]  # another process of the tests may be installing, too
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run([*patiently, *command], capture_output=True, env=environment)
