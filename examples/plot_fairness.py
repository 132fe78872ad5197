r"""
A fair classifier: decisions that hardly vary with a sensitive attribute
========================================================================

A bank decides on loans. Its data has no column for the group that an applicant belongs to, but other columns
depend on it, and so do the decisions. Zafar et al. (2017) bound the covariance between the group and the
decision function from both sides. It is linear in the coefficients :math:`w`,

.. math:: -c \le \frac1n \sum_i (s_i - \bar s) \, x_i^T w \le c,

so the models that meet it are a polytope. The intercept does not matter, because :math:`s_i - \bar s` sums
to zero. Each fit comes with a proof that no model as fair as that has a smaller loss by more than its gap.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skfw import HFWLogisticRegression
from skfw.engine import Polytope

# Four columns say who pays back. Four others say something about the group, which had worse chances so far.
rng = np.random.default_rng(0)
n_samples = 20_000
group = rng.uniform(size=n_samples) < 0.4
merit = rng.normal(size=(n_samples, 4))
proxies = 1.2 * group[:, np.newaxis] + rng.normal(size=(n_samples, 4))
score = merit @ [1.5, 1.0, 0.5, 0.5] + 1.0 - 3.0 * group + rng.logistic(size=n_samples)
X, y = StandardScaler().fit_transform(np.hstack([merit, proxies])), score > 0
X_train, X_test, y_train, y_test, s_train, s_test = train_test_split(X, y, group, random_state=0)

# %%
# One row of ``A_ub`` for each side of the covariance. Bounds must be finite; these are too large to matter.
covariance = (s_train - s_train.mean()) @ X_train / len(X_train)
both_sides = np.vstack([covariance, -covariance])


def fair_classifier(bound):
    """Fit a classifier whose decision function has at most this covariance with the group."""
    models = Polytope(A_ub=both_sides, b_ub=np.full(2, bound), bounds=(-10.0, 10.0))
    return HFWLogisticRegression(models, tol=1e-6).fit(X_train, y_train)


unfair = abs(both_sides @ fair_classifier(10.0).coef_[0]).max()
bounds = np.linspace(0.0, unfair, 13)
models = [fair_classifier(bound) for bound in bounds]
accuracies = [model.score(X_test, y_test) for model in models]
rates = np.array([[model.predict(X_test)[s_test == one].mean() for one in (False, True)] for model in models])
print("bound  accuracy  loans to others  to the group  certified gap")
for bound, accuracy, (others, members), model in zip(bounds, accuracies, rates, models, strict=True):
    print(f"{bound:5.2f}  {accuracy:8.3f}  {others:15.2f}  {members:12.2f}  {model.gap_:13.0e}")

# %%
# What fairness costs: on the left the accuracy, on the right the share of each group that gets a loan.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(bounds, accuracies, marker=".")
left.set(xlabel="bound of the covariance", ylabel="accuracy on new applicants")
right.plot(bounds, rates[:, 0], marker=".", label="others")
right.plot(bounds, rates[:, 1], marker=".", label="group")
right.set(xlabel="bound of the covariance", ylabel="share that gets a loan", ylim=(0, 1))
right.legend()
