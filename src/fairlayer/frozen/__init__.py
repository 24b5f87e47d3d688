"""Projections solved once and served one sample at a time."""
