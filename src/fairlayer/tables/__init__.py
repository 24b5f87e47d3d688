"""Tables: one reader of files for every command, and one translation of cells into SQL."""
