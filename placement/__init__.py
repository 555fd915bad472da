"""The pure core: given events and a time it returns placements, moves and their reasons.

No I/O, clock, randomness or logging happens here; the stream, the offline tool and the
simulator run the same functions.
"""
