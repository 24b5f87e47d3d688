"""Streams: Algorithm 1 of the paper, and a ledger whose promise holds after every batch."""

from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream.certificate import Certificate
from fairlayer.stream.log import Verification
from fairlayer.stream.store import stream_names
from fairlayer.stream.stream import Stream

__all__ = ["Certificate", "StoreError", "Stream", "UncertainError", "Verification", "stream_names"]
