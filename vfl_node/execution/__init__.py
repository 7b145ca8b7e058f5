"""One party's run of one job: preflight, align, train or predict, keep, finish."""
