"""Processes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch_distributed = pytest.importorskip("torch.distributed")
if not (torch_distributed.is_available() and torch_distributed.is_gloo_available()):
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

from pool import Pool  # noqa: E402


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Four processes."""
    pool = Pool()
    pool.warm_up()
    yield pool
    pool.close()
