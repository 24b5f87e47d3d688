"""`python -m fairlayer` is the command `fairlayer`."""

from fairlayer.cli import main

if __name__ == "__main__":
    main()
