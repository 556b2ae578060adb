"""What found the impulses of a step, by name; compiled code knows them by their place here."""

METHODS = ("", "newton", "admm", "guess", "pivoting", "fallback")
NOTHING, NEWTON, ADMM, GUESS, PIVOTING, FALLBACK = range(6)
