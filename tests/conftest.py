"""Settings for all tests."""

import pytest
import torch

torch.set_num_threads(1)  # the tensors are small: threads would only wait for each other


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """The demo asks for two, and the last digits of a network depend on it: no test may leave that to the next."""
    torch.set_num_threads(1)
