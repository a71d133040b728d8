"""The harness: vocabulary, worlds, runner, command line."""
