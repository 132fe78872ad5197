"""
Rows in blocks, with Dask
=========================

A fit whose rows are in blocks on the workers of a cluster. Here the cluster is in this process and its
workers make the data; with machines and files nothing else changes.
"""

import dask.array
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from skfw import ConvergenceDisplay, HFWLogisticRegression
from skfw.dask import DaskHFWLogisticRegression

cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=False)
client = Client(cluster)

rng = dask.array.random.default_rng(0)
common = rng.standard_normal((20_000, 1), chunks=(5_000, 1))
X = rng.standard_normal((20_000, 100), chunks=(5_000, 100)) + 2 * common
coef = np.zeros(100)
coef[:10] = [1.0, -1.0, 0.5, -0.5, 0.25, -0.25, 0.1, -0.1, 0.05, -0.05]
y = (X @ coef + rng.logistic(size=20_000, chunks=5_000) > 0).astype(int)
X, y = client.persist([X, y])

model = DaskHFWLogisticRegression("l1", radius=3, tol=1e-6).fit(X, y)
print(f"{model.n_iter_} iterations, certified gap {model.gap_:.1e}, {np.count_nonzero(model.coef_)} features")
print(f"accuracy {model.score(X, y):.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
ConvergenceDisplay.from_estimator(model, ax=left)
right.stem(model.coef_.ravel(), basefmt="0.8")
right.plot(coef, "k_", label="of the data")
right.set(xlim=(-1, 30), xlabel="feature", ylabel="coefficient", title="the first features")
right.legend()

# %%
# Predictions of a Dask collection are one as well, computed when they are asked for.

print(model.predict_proba(X))
print(model.predict_proba(X)[:3].compute().round(3))

# %%
# The plain estimator on the same rows has the same coefficients, up to rounding or up to the gap, and
# ``to_local`` returns a fitted one, which knows nothing of Dask.

plain = HFWLogisticRegression("l1", radius=3, tol=1e-6).fit(X.compute(), y.compute())
print(f"largest difference {abs(plain.coef_ - model.coef_).max():.1e}")

local = model.to_local()
print(local)
print(local.predict(np.eye(100)[:3]))

client.close()
cluster.close()
