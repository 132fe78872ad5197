"""Cross-validation over a path of 20 strengths on w7a, against the peers that can do the same.

The grid is one of penalties; skfw gets the radii that the penalised solutions have on all data. All fit the
l1 model without an intercept, in five folds, one after the other. Solvers take turns, so that a machine which
is busy for a while slows them all; the table shows medians.

    python examples/benchmarks/path.py --data DIR

DIR holds w7a.bz2 from the LIBSVM data page. celer is in the extra `bench`.
"""

import argparse
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from celer.homotopy import celer_path
from logistic import load
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold

from skfw import HFWLogisticRegressionCV

N_STRENGTHS, N_FOLDS = 20, 5


def scikit_learn(X, y, Cs, solver):
    """Run LogisticRegressionCV."""
    return LogisticRegressionCV(
        Cs=Cs,
        cv=N_FOLDS,
        solver=solver,
        l1_ratios=(1.0,),
        scoring="neg_log_loss",
        fit_intercept=False,
        use_legacy_attributes=False,
        random_state=0,
    ).fit(X, y)


def celer(X, y, Cs, tol):
    """Run celer's path in each fold, and on all data; celer has no cross-validated logistic regression."""
    folds = StratifiedKFold(N_FOLDS).split(X, y)
    for rows in [*(train for train, _ in folds), np.arange(len(y))]:
        celer_path(X[rows].tocsc(), y[rows], "logreg", alphas=1.0 / Cs, tol=tol)


def main():
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with w7a.bz2")
    parser.add_argument("--rounds", type=int, default=3, help="how often each solver is run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # saga does not converge in its default number of epochs
    X, y = load(options.data, "w7a")
    largest = float(np.abs(X.T @ y).max()) / 2.0  # of the penalty on the sum of losses
    Cs = np.geomspace(1.0 / (0.5 * largest), 1.0 / (0.001 * largest), N_STRENGTHS)
    coefs = celer_path(X.tocsc(), y, "logreg", alphas=1.0 / Cs, tol=1e-8)[1]
    radii = np.abs(coefs).sum(axis=0)

    runs = {
        "skfw, tol=1e-4": lambda: HFWLogisticRegressionCV(
            "l1", radii=radii, cv=N_FOLDS, fit_intercept=False
        ).fit(X, y),
        "skfw, tol=1e-6": lambda: HFWLogisticRegressionCV(
            "l1", radii=radii, cv=N_FOLDS, fit_intercept=False, tol=1e-6
        ).fit(X, y),
        "liblinear": lambda: scikit_learn(X, y, Cs, "liblinear"),
        "celer, tol=1e-4": lambda: celer(X, y, Cs, 1e-4),
        "celer, tol=1e-6": lambda: celer(X, y, Cs, 1e-6),
        "saga": lambda: scikit_learn(X, y, Cs, "saga"),
    }
    seconds = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            start = perf_counter()
            run()
            seconds[name].append(perf_counter() - start)
    own = np.median(seconds["skfw, tol=1e-4"])
    print(f"{'solver':18} {'seconds':>8} {'times skfw':>10}")
    for name, measured in seconds.items():
        print(f"{name:18} {np.median(measured):8.2f} {np.median(measured) / own:10.2f}")


if __name__ == "__main__":
    main()
