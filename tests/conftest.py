"""Settings for all tests."""

import torch

torch.set_num_threads(1)  # the tensors are small: threads would only wait for each other
