"""What `experiments.fairface` and `experiments.celeba` share.

settings -> arrays, backbones -> training -> inference -> study (units of work) -> tables, figures, claims.
"""
