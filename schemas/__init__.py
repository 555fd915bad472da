"""The wire contracts: what enters and leaves the reconciler, and on which topics.

Values here are pydantic models of single records. Meaning (placing, moving, judging) lives in
`placement`; the translation between the two is `streaming.codec` alone.
"""
