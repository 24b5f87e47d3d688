"""The suites of `./dev bench`, one module each, with `main(args) -> list[Target]`."""
