"""
A constraint of your own
========================

A set is known by its linear minimisation oracle: given a direction, the point of the set furthest against
it. Here the coefficients must not decrease from one feature to the next, between zero and a largest value: a
score that grows with each level of an ordered feature.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from skfw import HFWLogisticRegression
from skfw.engine import Constraint, DenseVector, LinearMinimum


class Monotone(Constraint):
    """Vectors with ``0 <= x_1 <= x_2 <= ... <= upper``."""

    contains_zero = True

    def __init__(self, upper):
        self.upper = upper

    def lmo(self, direction, hint=None):
        """Return a corner: zero up to some entry, `upper` from there on."""
        tails = np.append(np.cumsum(direction[::-1])[::-1], 0.0)  # what each corner would give
        start = int(np.argmin(tails))
        corner = np.zeros_like(direction)
        corner[start:] = self.upper
        return LinearMinimum(DenseVector(corner), self.upper * float(tails[start]))

    def diameter(self, shape):
        """Return the largest distance of two points."""
        return self.upper * np.sqrt(shape[0])


# %%
# Answers on a scale of twelve levels; the truth is a curve that rises and then stays.

rng = np.random.default_rng(0)
levels = rng.integers(0, 12, 1500)
truth = np.minimum(0.5 * np.arange(12), 3.0)
y = rng.uniform(size=1500) < 1 / (1 + np.exp(1.5 - truth[levels]))
X = np.eye(12)[levels]

model = HFWLogisticRegression(Monotone(upper=6.0)).fit(X, y)
free = LogisticRegression(C=1e3).fit(X, y)
print(f"log-loss {model.objective_:.4f}, certified to {model.gap_:.1e}, in {model.n_iter_} iterations")

figure, ax = plt.subplots(layout="constrained")
ax.plot(truth - truth[0], label="truth", color="0.5")
ax.plot(free.coef_[0] - free.coef_[0, 0], ".--", label="unconstrained")
ax.plot(model.coef_[0] - model.coef_[0, 0], "o-", label="monotone")
ax.set(xlabel="level", ylabel="effect, against the lowest level")
ax.legend()
