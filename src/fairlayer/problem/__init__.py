"""Constraints bound to a batch: groups become cells, and constraints rows over the sums of these cells."""
