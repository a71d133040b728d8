"""The command line: `laststand COMMAND ...`; `harness.cli.main` is its entry point."""
