"""
A run with its certificate
==========================

Every fit knows how far from the optimum it is at most. The band is where the optimum must lie; it narrows
from both sides, because the lower bound rises while the objective falls. The fit stops when it is thin.

Without correctors there is Frank-Wolfe, and Frank-Wolfe with weighted heavy-ball momentum. With correctors a
handful of iterations is enough.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from skfw import ConvergenceDisplay, HFWLogisticRegression

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)

runs = {
    "Frank-Wolfe": HFWLogisticRegression("l1", radius=5, corrective=False, momentum="none", tol=0.02),
    "with heavy-ball momentum": HFWLogisticRegression(
        "l1", radius=5, corrective=False, momentum="weighted", tol=0.02
    ),
    "with correctors": HFWLogisticRegression("l1", radius=5, tol=1e-6),
}
figure, ax = plt.subplots(layout="constrained")
for name, model in runs.items():
    model.fit(X, y)
    ConvergenceDisplay.from_estimator(model, name=f"{name}: {model.n_iter_} iterations", ax=ax)
ax.set(xscale="symlog", ylim=(0, 0.7))

# %%
# What the certificate says in numbers:

best = runs["with correctors"]
print(f"log-loss {best.objective_:.6f}; no coefficients in the ball have less than {best.lower_bound_:.6f}")
