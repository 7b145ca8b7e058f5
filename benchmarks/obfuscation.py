"""What obfuscated sets drawn again over almost the same records have in common: the table of
docs/explanations/alignment/index.md.

    python -m benchmarks.obfuscation        a minute

The strong party gains a record before each further draw. Precision is the part of what all draws have in common that is
shared: by :func:`precision`, and as the mean of simulated draws with its standard error. Seeds are fixed.
"""

from __future__ import annotations

import numpy as np

N_S, REPEATS, MOST_CHANGES = 2000, 200, 4
PARTS, FACTORS = (0.1, 0.2, 0.5, 0.7), (2, 5, 10)


def precision(shared: int, m: int, n_s: int, changes: int) -> float:
    """Which part of what ``changes`` + 1 obfuscated sets have in common is shared, by the mean number of the others there.

    Args:
        shared: |I|.
        m: records of an obfuscated set.
        n_s: records of the strong party.
        changes: of its set, by one record each.
    """
    q = (m - shared) / (n_s - shared)  # that one of the others is in a draw
    return shared / (shared + (n_s - shared) * q ** (changes + 1))


def simulated(shared: int, m: int, n_s: int, rng: np.random.Generator) -> list[float]:
    """The same of one series of draws, after 0, 1, … changes."""
    common = np.ones(n_s - shared, dtype=bool)
    found = []
    for changes in range(MOST_CHANGES + 1):
        drawn = np.zeros(n_s - shared + changes, dtype=bool)
        drawn[rng.choice(len(drawn), m - shared, replace=False)] = True
        common &= drawn[: len(common)]  # a record that is new was in no earlier draw
        found.append(shared / (shared + int(common.sum())))
    return found


def main() -> None:
    """Print the table."""
    print(f"| m / n_s | m / \\|I\\| |{''.join(f' {c} changes |' for c in range(MOST_CHANGES + 1))}")
    print(f"|---|---|{'---|' * (MOST_CHANGES + 1)}")
    rng, most_error = np.random.default_rng(0), 0.0
    for part in PARTS:
        for factor in FACTORS:
            m = round(part * N_S)
            series = np.array([simulated(m // factor, m, N_S, rng) for _ in range(REPEATS)])
            errors = series.std(axis=0, ddof=1) / REPEATS**0.5
            most_error = max(most_error, errors.max())
            cells = [f"{precision(m // factor, m, N_S, c):.2f} ({mean:.2f})" for c, mean in enumerate(series.mean(axis=0))]
            print(f"| {part} | {factor} | {' | '.join(cells)} |")
    print(f"\nIn brackets: simulated, {REPEATS} times, n_s = {N_S}; the largest standard error is {most_error:.4f}.")


if __name__ == "__main__":
    main()
