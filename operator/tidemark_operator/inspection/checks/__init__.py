"""One file a check. To add one: a file here with a `CHECK`, a line in `registry.CHECKS`, a test."""
