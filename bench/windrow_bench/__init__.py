"""Experiments, one per file, each with `main(argv) -> exit code`; `windrow bench NAME` runs them."""
