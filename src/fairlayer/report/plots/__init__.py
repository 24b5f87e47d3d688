"""The sections of the page: from an `Audit` to marks and tables, and None where there is nothing to show."""
