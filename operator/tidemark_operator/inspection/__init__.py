"""The automatic inspection, pure: from facts that somebody read to findings that somebody acts on.

`facts` says what is known, `checks/` has one file a check, `registry` lists them, `run` runs them all. What could not
be checked is part of the result, with the reason: an inspection that skips silently is worth nothing.
"""
