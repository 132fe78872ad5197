"""
Groups of features, in or out together
======================================

The one-hot columns of a categorical feature belong together. In a group ball the Euclidean norms of the
groups sum to at most the radius, so that whole features are left out.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import OneHotEncoder

from skfw import HFWLogisticRegression
from skfw.engine import GroupBall

rng = np.random.default_rng(0)
n_samples, n_features, n_levels = 400, 12, 5
categories = rng.integers(0, n_levels, size=(n_samples, n_features))
# The first three features matter, each level in its own way.
effects = np.zeros((n_features, n_levels))
effects[:3] = rng.normal(scale=1.5, size=(3, n_levels))
log_odds = effects[np.arange(n_features), categories].sum(axis=1)
y = rng.uniform(size=n_samples) < 1 / (1 + np.exp(-log_odds))

X = OneHotEncoder().fit_transform(categories)
groups = np.repeat(np.arange(n_features), n_levels)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, name, constraint in zip(
    axes, ("l1 ball", "group ball"), ("l1", GroupBall(radius=5.0, groups=groups)), strict=True
):
    model = HFWLogisticRegression(constraint, radius=10.0).fit(X, y)
    coefficients = model.coef_.reshape(n_features, n_levels)
    used = np.any(coefficients != 0, axis=1).sum()
    image = ax.imshow(coefficients.T, cmap="RdBu", vmin=-2, vmax=2, aspect="auto")
    ax.set(title=f"{name}: {used} features, gap {model.gap_:.0e}", xlabel="feature", ylabel="level")
figure.colorbar(image, ax=axes, label="coefficient")
