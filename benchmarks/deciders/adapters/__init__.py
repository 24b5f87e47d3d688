"""One module per method.

Each has `fit(split, tolerance)`, which returns a function that gives everybody's probability of a yes: 0 or 1 where
nothing is drawn. Only `fit` and that function are on the clock. A method that works on scores fits on
`split.fitting` and may look at its targets; one that trains a model of its own does so on `split.training`.
"""
