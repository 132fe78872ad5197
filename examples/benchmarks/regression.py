"""Time to a loss within 1e-6 of the best: the Lasso and least squares over sets against peers, and polytopes.

The Lasso: see `ladder` for how peers are timed. skfw is run with ``tol=1e-6``, in the ball whose radius the
penalised solution has. All of them fit an intercept, which is everyone's default; compiled peers are warmed
up, and formats that a peer prefers are prepared outside of the clock.

Least squares over a simplex and over a box: cvxpy with the solver it chooses, for the problem as one would
write it down and at that solver's own tolerance; the table says how accurate both are.

Polytopes: seconds of a classifier with linear constraints to a certified 1e-4 and 1e-6, and how they grow.

    python examples/benchmarks/regression.py

The peers are in the extra `bench`: ``pip install ".[bench]"``.
"""

import argparse
import os
import warnings
from functools import partial

import cvxpy
import numpy as np
from celer import Lasso as CelerLasso
from ladder import ACCURACY, Case, report, simple_table, table, take_turns, timed
from logistic import correlated, text
from scipy import sparse
from skglm import Lasso as SkglmLasso
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skfw import HFWLogisticRegression, HFWRegressor
from skfw.engine import Box, Polytope

# Of the strength at which all coefficients are zero: few, some and many of them are not.
SHARES = (0.3, 0.1, 0.01)
# The Gram matrix of more features does not fit into memory.
MANY_FEATURES = 5000


def made(features, n_samples, n_features):
    """Return made features and targets."""
    rng = np.random.default_rng(0)
    X, signal = features(n_samples, n_features, rng)
    return X, noisy(signal, rng)


def noisy(signal, rng):
    """Add as much noise as there is signal."""
    return signal + signal.std() * rng.normal(size=len(signal))


def diabetes():
    """Return the diabetes data with all products of two features, standardised."""
    X, y = load_diabetes(return_X_y=True)
    expand = make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler())
    return expand.fit_transform(X), y


DATA = {
    "diabetes": diabetes,
    "dense": partial(made, correlated, 10_000, 1_000),
    "text": partial(made, text, 5_000, 50_000),
    "tall": partial(made, correlated, 500_000, 100),
}
PEERS = {
    "scikit-learn": partial(Lasso, max_iter=100_000),
    "with Gram": partial(Lasso, max_iter=100_000, precompute=True),
    "celer": CelerLasso,
    "skglm": SkglmLasso,
}
# Sets as skfw and as cvxpy know them, and coefficients that are in them, many of them on the boundary.
SETS = {
    "simplex": (
        "simplex",
        lambda x: [x >= 0, cvxpy.sum(x) == 1],
        lambda rng, size: rng.dirichlet(np.full(size, 0.1)),
    ),
    "box": (
        Box(0.0, 1.0),
        lambda x: [x >= 0, x <= 1],
        lambda rng, size: np.clip(rng.normal(0.5, 1.0, size), 0.0, 1.0),
    ),
}
SHAPES = ((1_000, 200), (5_000, 1_000))
# Samples, features and inequalities of a classifier in a polytope.
POLYTOPES = (
    (20_000, 100, 50),
    (100_000, 100, 50),
    (20_000, 100, 500),
    (20_000, 300, 50),
    (20_000, 1_000, 50),
)


def loss(X, y, coef):
    """Return half the mean squared error, with the best intercept."""
    return float(np.var(y - X @ coef)) / 2.0


def lasso_cases(name, options):
    """Yield the settings of a data set, with the times of the peers and of skfw."""
    X, y = DATA[name]()
    by_columns = X.tocsc() if sparse.issparse(X) else np.asfortranarray(X)
    largest = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    for share in SHARES:
        case = Case(name, "l1", f"lambda/max={share:g}", share * largest, float(np.var(y)) / 2.0)
        peers = {
            peer: partial(fit_peer, make, by_columns, y, case.strength)
            for peer, make in PEERS.items()
            if not (peer == "with Gram" and X.shape[1] > MANY_FEATURES)
        }
        for peer, fit in peers.items():
            fit(0.1)  # which compiles what there is to compile
            case.climb(peer, fit, partial(loss, X, y), options.limit)
        model = HFWRegressor("l1", case.radius, tol=ACCURACY).fit(X, y)
        case.measure(peers, partial(model.fit, X, y), options.repeat)
        assert model.converged_
        yield case


def fit_peer(make, X, y, strength, tol):
    """Fit the Lasso of a peer; return its coefficients."""
    return make(alpha=strength, tol=tol).fit(X, y).coef_


def least_squares(name, shape, repeat):
    """Return a line of the table: the seconds and the accuracy of skfw and of cvxpy.

    cvxpy, which takes up to minutes, is run once.
    """
    constraint, in_set, truth = SETS[name]
    n_samples, n_features = shape
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    y = noisy(X @ truth(rng, n_features), rng)
    model = HFWRegressor(constraint, radius=1.0, tol=ACCURACY, fit_intercept=False).fit(X, y)
    own = take_turns({"skfw": partial(model.fit, X, y)}, repeat)["skfw"]
    assert model.converged_
    variable = cvxpy.Variable(n_features)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(X @ variable - y)), in_set(variable))
    peer, _ = timed(problem.solve)
    null, optimum = float(np.mean(y**2)) / 2.0, clone(model).set_params(tol=1e-10).fit(X, y).lower_bound_
    cells = [f"{name}, {n_samples:,} x {n_features:,}"]
    for seconds, coef in ((own, model.coef_), (peer, variable.value)):
        accuracy = (float(np.mean((y - X @ coef) ** 2)) / 2.0 - optimum) / null
        cells += [f"{seconds:.3g} s", f"{accuracy:.0e}"]
    return [*cells, f"{peer / own:.0f}"]


def polytope(n_samples, n_features, n_inequalities):
    """Return a line of the table: seconds and gaps of classifiers, and how many constraints are tight."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_features))
    scores = X @ rng.normal(size=n_features) * (3.0 / np.sqrt(n_features))
    y = scores + rng.logistic(size=n_samples) > 0.0
    rows = rng.normal(size=(n_inequalities, n_features)) / np.sqrt(n_features)
    models = Polytope(A_ub=rows, b_ub=np.full(n_inequalities, 0.1), bounds=(-1.0, 1.0))
    cells = [f"{n_samples:,} x {n_features:,}, {n_inequalities}"]
    for tol in (1e-4, ACCURACY):
        seconds, model = timed(HFWLogisticRegression(models, tol=tol).fit, X, y)
        assert model.converged_
        cells += [f"{seconds:.2g} s", f"{model.gap_:.0e}"]
    tight = np.count_nonzero(rows @ model.coef_[0] > 0.1 - 1e-8)
    return [*cells, str(model.n_iter_), str(tight)]


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[*DATA, *SETS, "polytope"], help="by default all")
    parser.add_argument("--repeat", type=int, default=5, help="fits whose median is taken")
    parser.add_argument(
        "--limit", type=float, default=10.0, help="seconds after which a peer is not run tighter"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # peers warn where a tolerance is out of reach
    print(f"{os.cpu_count()} cores")
    cases = []
    for name in DATA:
        if name in options.only:
            for case in lasso_cases(name, options):
                report([case])
                cases.append(case)
    if cases:
        print()
        report(cases)
        print(table(cases))
    if lines := [
        least_squares(name, shape, options.repeat)
        for name in SETS
        if name in options.only
        for shape in SHAPES
    ]:
        print(simple_table(["\\", "skfw", "accuracy", "cvxpy", "accuracy", "ratio"], lines))
    if "polytope" in options.only:
        header = ["samples x features, inequalities", "1e-4", "gap", "1e-6", "gap", "iterations", "tight"]
        print(simple_table(header, [polytope(*size) for size in POLYTOPES]))


if __name__ == "__main__":
    main()
