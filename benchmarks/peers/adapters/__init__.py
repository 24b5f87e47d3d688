"""One module per method.

Each has `FRAMEWORK` ("torch" or "jax") and `build(case, groups, **options)`, which returns a function
project(z, groups) -> y that the framework can differentiate. What `build` does is not on the clock;
what project does with the membership of a new batch is. `groups` is the first batch's, for methods that
keep it.
"""
