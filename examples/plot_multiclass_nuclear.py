"""
Many classes that share directions
==================================

The coefficients of a multiclass model are a matrix. In a nuclear-norm ball it has low rank: the classes share
a few directions of the features, instead of having one each.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skfw import HFWLogisticRegression

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)

models = {
    radius: HFWLogisticRegression("nuclear", radius=radius, tol=1e-2).fit(X_train, y_train)
    for radius in (5, 15, 40)
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for radius, model in models.items():
    values = np.linalg.svd(model.coef_, compute_uv=False)
    label = f"radius {radius}: accuracy {model.score(X_test, y_test):.3f}"
    left.plot(np.arange(1, len(values) + 1), values, marker=".", label=label)
left.set(xlabel="number", ylabel="singular value")
left.legend()

# The two leading directions separate some of the digits by themselves.
directions = np.linalg.svd(models[15].coef_)[2][:2]
first, second = directions @ X_test.T
right.scatter(first, second, c=y_test, cmap="tab10", s=10)
for digit in range(10):
    middle = first[y_test == digit].mean(), second[y_test == digit].mean()
    right.annotate(str(digit), middle, fontsize=14)
right.set(xlabel="first direction", ylabel="second direction")
