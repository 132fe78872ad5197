"""
Synthetic control: what would have happened without the intervention
====================================================================

One region has changed a law, the others have not. A weighted mean of the others that follows the region
before the change stands in for what the region would have done without it (Abadie, Diamond and Hainmueller,
2010). Weights that are not negative and sum to one keep that stand-in between the regions it is made of: they
are in a simplex.
"""

import matplotlib.pyplot as plt
import numpy as np

from skfw import HFWRegressor

# Thirty regions over forty years follow three common trends, each in its own mixture. From year 25 on the
# first has the law.
rng = np.random.default_rng(0)
n_regions, n_years, change = 30, 40, 25
trends = np.cumsum(rng.normal(scale=0.6, size=(n_years, 3)), axis=0)
outcomes = 20 + trends @ rng.dirichlet(np.full(3, 5.0), size=n_regions).T * 3
outcomes += rng.normal(scale=0.15, size=outcomes.shape)
effect = -3.0 * (1 - np.exp(-np.arange(n_years - change) / 5))
outcomes[change:, 0] += effect
years = np.arange(n_years)


def synthetic_control(region):
    """Fit the weights of all other regions to the years before the change."""
    others = np.delete(outcomes, region, axis=1)
    model = HFWRegressor("simplex", radius=1.0, fit_intercept=False, tol=1e-8)
    model.fit(others[:change], outcomes[:change, region])
    return model, outcomes[:, region] - model.predict(others)


model, difference = synthetic_control(0)
print(f"{(model.coef_ > 0).sum()} of {n_regions - 1} regions have a weight, in sum {model.coef_.sum():.6f}")
print(f"no other weights fit better by more than {model.gap_:.1e} (half the mean squared error)")
print(f"mean effect after the change: {difference[change:].mean():.2f}; the truth: {effect.mean():.2f}")

# %%
# The estimate is as good as the regions that it is made of: noise in the years before the change is followed
# too, and what the others do by chance after it counts as an effect.
#
# Is the difference more than chance? The same for each other region, in which nothing happened, says how
# large differences are without an intervention. Those that could not be followed before the change are left
# out.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(years, outcomes[:, 1:], color="0.85", linewidth=0.8)
left.plot(years, outcomes[:, 0], color="C0", label="region")
left.plot(years, outcomes[:, 0] - difference, color="C1", linestyle="--", label="synthetic control")
left.set(xlabel="year", ylabel="outcome")
left.legend()

error = np.sqrt(np.mean(difference[:change] ** 2))
for region in range(1, n_regions):
    _, placebo = synthetic_control(region)
    if np.sqrt(np.mean(placebo[:change] ** 2)) <= 2 * error:
        right.plot(years, placebo, color="0.8", linewidth=0.8)
right.plot(years, difference, color="C0", label="region less synthetic control")
right.plot(years[change:], effect, color="k", linestyle=":", label="true effect")
right.set(xlabel="year", ylabel="difference")
right.legend()
for ax in (left, right):
    ax.axvline(change, color="0.5", linewidth=0.8)
