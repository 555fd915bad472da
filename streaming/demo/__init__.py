"""The demo: the whole system told as a story on one machine."""
