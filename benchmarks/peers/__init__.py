"""fairlayer beside other software that can solve the same problem, each in an environment of its own."""
