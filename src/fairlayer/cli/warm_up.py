"""`fairlayer warm-up`: compile everything beforehand."""

from __future__ import annotations

import time

from fairlayer.cli.terminal import say


def warm_up() -> int:
    """Compile everything that layers and streams run, so that the first batch is as quick as any other.

    It is kept on disk and done once per installation: run this where an image is built.

    `fairlayer warm-up`
    """
    from fairlayer.warm import warm_up as compile_everything

    began = time.perf_counter()
    compile_everything()
    say(f"Everything is compiled ({time.perf_counter() - began:.0f} s).")
    return 0
