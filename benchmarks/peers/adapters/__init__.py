"""One module per method.

Each has `FRAMEWORK` ("torch" or "jax") and `build(case, given, **options)`, which returns a function
project(z, given) -> y that the framework can differentiate. What `build` does is not on the clock;
what project does with the groups, or rows, of a new batch is. `given` are those of the first batch, for methods that
keep them.
"""
