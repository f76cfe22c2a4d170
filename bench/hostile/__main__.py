"""Polls of good guests beside attacks by others: the scenario of `bench.poll` alone."""

import sys

from bench.poll.__main__ import main

main(["--only", "hostile", *sys.argv[1:]])
