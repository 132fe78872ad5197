"""
Reduced-rank regression: many targets that share a few causes
=============================================================

Forty targets depend on fifty features by way of three combinations of them. The coefficients are a matrix
of rank three, which least squares knows nothing of. In a nuclear-norm ball the singular values of the matrix
sum to at most the radius, so that many of them are zero.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import train_test_split

from skfw import HFWRegressorCV, RadiusPathDisplay

rng = np.random.default_rng(0)
n_samples, n_features, n_targets, rank = 300, 50, 40, 3
truth = rng.normal(size=(n_targets, rank)) @ rng.normal(size=(rank, n_features)) / 4
X = rng.normal(size=(n_samples, n_features))
y = X @ truth.T + 3 * rng.normal(size=(n_samples, n_targets))
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.6, random_state=0)

models = {
    "least squares": LinearRegression(),
    "ridge": RidgeCV(np.geomspace(1, 1e4, 20)),
    "nuclear-norm ball": HFWRegressorCV("nuclear", cv=3),
}
for name, model in models.items():
    model.fit(X_train, y_train)
    print(f"{name:18} R² on new samples {model.score(X_test, y_test):.3f}")

# %%
# The radius is chosen by cross-validation. No matrix of coefficients in that ball has a loss on the training
# data that is smaller by more than the certified gap.
chosen = models["nuclear-norm ball"]
print(f"radius {chosen.radius_:.1f}, loss {chosen.objective_:.3f}, certified gap {chosen.gap_:.1e}")

# %%
# Least squares follows the noise in all forty directions, and ridge shrinks them all. In the ball most of
# them end at zero, and those of the truth remain.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
RadiusPathDisplay.from_estimator(chosen, ax=left)
numbers = np.arange(1, n_targets + 1)
for name, model in models.items():
    right.plot(numbers, np.linalg.svd(model.coef_, compute_uv=False), ".-", label=name)
right.plot(numbers, np.linalg.svd(truth, compute_uv=False), "k:", label="truth")
right.set(xlabel="number", ylabel="singular value of the coefficients")
right.legend()
