"""`python -m streaming.cli`: the same as `placer`, for processes that start themselves."""

from streaming.cli.main import main

main()
