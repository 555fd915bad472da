"""Holds the pure core: computes placements, moves and their reasons from events and a time.

No I/O, clock, randomness or logging happens here; the stream, the offline tool and the simulator
run the same functions.
"""
