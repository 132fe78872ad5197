"""
Choosing the radius
===================

A radius can be read: here the absolute values of the coefficients sum to at most so much. It is chosen by
cross-validation, and the path shows which features enter as it grows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfw import HFWLogisticRegressionCV, RadiusPathDisplay

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
model = make_pipeline(
    StandardScaler().set_output(transform="pandas"), HFWLogisticRegressionCV("l1", radii=15, cv=5)
)
model.fit(X, y)
chosen = model[-1]
print(f"radius {chosen.radius_:.2f}, {(chosen.coef_ != 0).sum()} of {X.shape[1]} features")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
RadiusPathDisplay.from_estimator(model, ax=left)
left.set(title="held-out samples, mean and spread of the folds")
RadiusPathDisplay.from_data(model[:-1].transform(X), y, radii=chosen.radii_, ax=right)
right.axvline(chosen.radius_, color="0.5", linestyle=":")
right.set(title="all samples")

# %%
# ``GridSearchCV`` works as well, over the radius and everything else.

from sklearn.model_selection import GridSearchCV

from skfw import HFWLogisticRegression

search = GridSearchCV(
    make_pipeline(StandardScaler(), HFWLogisticRegression()),
    {"hfwlogisticregression__radius": [0.3, 1, 3, 10], "hfwlogisticregression__constraint": ["l1", "l2"]},
).fit(X, y)
print(search.best_params_, f"accuracy {search.best_score_:.3f}")
