"""Streams: Algorithm 1 of the paper, and a ledger whose promise holds after every batch."""

from fairlayer.errors import StoreError
from fairlayer.stream.certificate import Certificate
from fairlayer.stream.log import Verification
from fairlayer.stream.stream import Stream

__all__ = ["Certificate", "StoreError", "Stream", "Verification"]
