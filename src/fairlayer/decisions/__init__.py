"""Decisions: the nearest scores whose rates of yes, a score at the threshold or above, are nearly equal."""
