"""Break one spot of the source at a time and see whether a test notices:
`python -m tests.mutants --help`."""
