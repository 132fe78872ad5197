"""
Momenta compared by their gaps
==============================

The momentum decides which past gradients the next direction looks at. Without correctors that is all there is
to tell runs apart, and soon their objectives differ by less than the width of a line. Their certified gaps
differ by far more: a gap is what a run has proven, not only what it has reached.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from skfw import ConvergenceDisplay, HFWLogisticRegression

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, constraint in zip(axes, ("l1", "l2"), strict=True):
    for momentum in ("none", "uniform", "weighted", "adaptive"):
        model = HFWLogisticRegression(
            constraint, radius=5, momentum=momentum, corrective=False, tol=2e-3, max_iter=10_000
        ).fit(X, y)
        ConvergenceDisplay.from_estimator(model, y="gap", name=momentum, ax=ax)
    ax.set(xscale="log", title=f"{constraint} ball")
