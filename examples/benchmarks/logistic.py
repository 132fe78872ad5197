"""Time to a log-loss within 1e-6 of the best, against the solvers people use today.

For each peer: the cheapest of its tolerances that gets within 1e-6 (relative to the null model) of the best
objective that anyone found. For skfw: a run with ``tol=1e-6``, stopped by its own certificate, in the ball
whose radius the penalised solution has. All of them fit without an intercept, because not every peer has
one; compiled peers are warmed up, formats that a peer prefers are prepared outside of the clock, and times
are medians of repeated fits in one process.

    python examples/benchmarks/logistic.py --data DIR --table logistic.csv --plot logistic.png

DIR holds mushrooms.bz2, w7a.bz2 and ijcnn1.bz2 from the LIBSVM data page
(https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html), and farm-ads/X.npz and y.npy: the words
of Farm Ads (https://archive.ics.uci.edu/dataset/218/farm+ads) as a sparse matrix, and labels -1 and 1. Four
more data sets are made, one of them of many classes. The peers are in the extra `bench`:
``pip install ".[bench]"``.
"""

import argparse
import bz2
import csv
import os
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from ladder import ACCURACY, Case, report, table
from scipy import sparse
from scipy.special import logsumexp
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression

from skfw import HFWLogisticRegression

# Newton's method with a matrix of all features squared is not for this many.
MANY_FEATURES = 5000


def load(folder, name):
    """Return a LIBSVM data set with labels -1 and 1."""
    with bz2.open(folder / f"{name}.bz2") as file:
        X, y = load_svmlight_file(file)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, np.where(y == y.max(), 1.0, -1.0)


def farm_ads(folder):
    """Return the words of advertisements, and whether they were approved: nearly separable."""
    return sparse.load_npz(folder / "farm-ads" / "X.npz").tocsr(), np.load(folder / "farm-ads" / "y.npy")


def wide():
    """Return text-like data with labels."""
    rng = np.random.default_rng(0)
    X, scores = text(5_000, 50_000, rng)
    return X, labels(3.0 / scores.std() * scores, rng)


def tall():
    """Return dense, correlated features with labels."""
    rng = np.random.default_rng(0)
    X, scores = correlated(200_000, 100, rng)
    return X, labels(scores, rng)


def binary():
    """Return 14 attributes of a few categories each, some of them rare, as zeros and ones; with labels."""
    rng = np.random.default_rng(0)
    n_samples, sizes = 32_561, [5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41]
    parts = []
    for size in sizes:
        frequency = rng.permutation(1.0 / np.arange(1, size + 1) ** 2)
        parts.append(rng.choice(size, n_samples, p=frequency / frequency.sum()))
    columns = np.column_stack(parts) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    starts = len(sizes) * np.arange(n_samples + 1)
    X = sparse.csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape=(n_samples, sum(sizes)))
    return X, labels(X @ rng.normal(size=sum(sizes)) - 1.5, rng)


def classes():
    """Return text-like data of twenty classes."""
    rng = np.random.default_rng(0)
    X, _ = text(5_000, 20_000, rng)
    truth = np.zeros((20_000, 20))
    truth[:2_000] = rng.normal(size=(2_000, 20))
    return X, (10.0 * (X @ truth) + rng.gumbel(size=(5_000, 20))).argmax(axis=1).astype(float)


def text(n_samples, n_features, rng, support=1_000):
    """Return words with Zipf's frequencies, tf-idf, rows of norm one; and the sum over those that matter."""
    frequency = 1.0 / np.arange(1, n_features + 1)
    frequency /= frequency.sum()
    lengths = rng.poisson(100, n_samples) + 1
    words = rng.choice(n_features, lengths.sum(), p=frequency)
    rows = np.repeat(np.arange(n_samples), lengths)
    X = sparse.csr_matrix((np.ones(len(words)), (rows, words)), shape=(n_samples, n_features))
    X.sum_duplicates()
    documents = np.bincount(X.indices, minlength=n_features)
    X.data = (1.0 + np.log(X.data)) * np.log((1.0 + n_samples) / (1.0 + documents[X.indices]))
    norms = np.sqrt(X.multiply(X).sum(axis=1)).A1
    X.data /= np.repeat(norms, np.diff(X.indptr))
    truth = np.zeros(n_features)
    truth[rng.choice(n_features, support, replace=False, p=frequency)] = rng.normal(size=support)
    return X, X @ truth


def correlated(n_samples, n_features, rng):
    """Return dense features with a part in common, and the sum over those that matter: one in five."""
    X = rng.normal(size=(n_samples, n_features)) + 0.5 * rng.normal(size=(n_samples, 1))
    truth = np.zeros(n_features)
    truth[::5] = rng.normal(size=len(truth[::5]))
    return X, X @ truth


def labels(scores, rng):
    """Draw labels with these log-odds."""
    return np.where(rng.uniform(size=len(scores)) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)


def loss(X, y, coef):
    """Return the mean log-loss; coefficients of several classes have a row for each."""
    if coef.ndim == 1:
        return float(np.logaddexp(0.0, -y * (X @ coef)).mean())
    scores = X @ coef.T
    return float((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y.astype(int)]).mean())


def scikit_learn(solver, norm, max_iter=10_000):
    """Return a fit by scikit-learn with a solver."""

    def fit(X, y, strength, tol):
        penalty = {"l1_ratio": 1.0 if norm == "l1" else 0.0}
        model = LogisticRegression(
            C=1.0 / (strength * len(y)),
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            fit_intercept=False,
            random_state=0,
            **penalty,
        )
        return np.squeeze(model.fit(X, y).coef_)

    return fit


def celer(X, y, strength, tol):
    """Fit by celer."""
    from celer import LogisticRegression as Celer

    return Celer(C=1.0 / (strength * len(y)), tol=tol, fit_intercept=False).fit(X, y).coef_.ravel()


def skglm(X, y, strength, tol):
    """Fit by skglm."""
    from skglm import SparseLogisticRegression

    return SparseLogisticRegression(alpha=strength, tol=tol, fit_intercept=False).fit(X, y).coef_.ravel()


PEERS = {
    "l1": {
        "liblinear": scikit_learn("liblinear", "l1"),
        "saga": scikit_learn("saga", "l1", max_iter=1_000),
        "celer": celer,
        "skglm": skglm,
    },
    "l2": {
        "lbfgs": scikit_learn("lbfgs", "l2"),
        "newton-cg": scikit_learn("newton-cg", "l2"),
        "newton-cholesky": scikit_learn("newton-cholesky", "l2"),
        "liblinear": scikit_learn("liblinear", "l2"),
    },
}
COMPILED = ("celer", "skglm")
# These fit one class against another, or against the others.
TWO_CLASSES = (*COMPILED, "liblinear")


def cases(name, X, y):
    """Yield the six settings of a data set."""
    targets = y[:, np.newaxis] == np.unique(y)
    largest = float(np.abs(X.T @ (targets - 1.0 / targets.shape[1])).max()) / len(y)
    null = float(np.log(targets.shape[1]))
    for share in (0.1, 0.01, 0.001):
        yield Case(name, "l1", f"lambda/max={share:g}", share * largest, null)
    for C in (0.01, 1.0, 100.0):
        yield Case(name, "l2", f"C={C:g}", 1.0 / (C * len(y)), null)


def measure(case, X, y, by_columns, options):
    """Time the peers and skfw; return the trace of skfw."""
    peers = {}
    for peer, fit in PEERS[case.norm].items():
        if peer == "newton-cholesky" and X.shape[1] > MANY_FEATURES:
            continue
        if peer in TWO_CLASSES and case.null > np.log(2.0):
            continue
        matrix = by_columns if peer in COMPILED else X
        peers[peer] = partial(fit, matrix, y, case.strength)
        if peer in COMPILED:
            peers[peer](0.1)
        case.climb(peer, peers[peer], partial(loss, X, y), options.limit)
    model = HFWLogisticRegression(case.norm, case.radius, tol=ACCURACY, fit_intercept=False).fit(X, y)
    case.measure(peers, partial(model.fit, X, y), options.repeat)
    assert model.converged_
    return model.trace_ | {"distance": np.maximum(model.trace_["objective"] - model.lower_bound_, model.gap_)}


def write(cases, file):
    """Write all times as CSV."""
    solvers = ["skfw", *PEERS["l1"], *(peer for peer in PEERS["l2"] if peer not in PEERS["l1"])]
    with open(file, "w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["data", "norm", "setting", "radius", "support", "ratio", *solvers])
        for case in cases:
            seconds = [case.seconds.get(solver) for solver in solvers]
            lines.writerow(
                [case.data, case.norm, case.setting, f"{case.radius:.6g}", case.support, f"{case.ratio:.3f}"]
                + ["" if value is None else f"{value:.5f}" for value in seconds]
            )


def draw(cases, traces, file):
    """Draw the distance to the optimum against time, a panel for each case."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    colors = {
        "liblinear": "tab:orange",
        "saga": "tab:pink",
        "celer": "tab:green",
        "skglm": "tab:purple",
        "lbfgs": "tab:green",
        "newton-cg": "tab:purple",
        "newton-cholesky": "tab:pink",
    }
    names = list(dict.fromkeys(case.data for case in cases))
    rows = list(dict.fromkeys((case.norm, case.setting) for case in cases))
    figure, axes = plt.subplots(
        len(rows),
        len(names),
        figsize=(2.6 * len(names), 1.9 * len(rows)),
        squeeze=False,
        layout="constrained",
    )
    for case, trace in zip(cases, traces, strict=True):
        ax = axes[rows.index((case.norm, case.setting)), names.index(case.data)]
        for peer, rungs in case.ladders.items():
            seconds = [rung.seconds for rung in rungs]
            distance = [max((rung.objective - case.best) / case.null, 1e-10) for rung in rungs]
            ax.loglog(seconds, distance, ".-", color=colors[peer], lw=1, ms=4, label=peer)
        # The trace begins where the fit to a sample ends.
        seconds = case.seconds["skfw"] - trace["seconds"][-1] + trace["seconds"]
        ax.loglog(seconds, trace["distance"] / case.null, "k.-", lw=1.8, ms=5, label="skfw")
        ax.loglog(seconds, trace["gap"] / case.null, "k:", lw=1, label="skfw, certified")
        ax.axhline(ACCURACY, color="0.7", lw=0.8)
        ax.set_ylim(1e-10, 3)
        if ax.get_subplotspec().is_first_row():
            ax.set_title(case.data)
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(f"{case.norm}, {case.setting}", fontsize=8)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.tick_params(labelsize=7)
    for row, norm in ((0, "l1"), (len(rows) - 1, "l2")):
        if rows[row][0] == norm:
            axes[row, -1].legend(fontsize=6, loc="lower left")
    figure.supxlabel("seconds")
    figure.supylabel("distance to the best objective, relative to the null model")
    figure.savefig(file, dpi=72)


def main():
    """Measure, print, write and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the data")
    parser.add_argument("--only", nargs="*", help="names of data sets, by default all")
    parser.add_argument("--norms", nargs="*", default=["l1", "l2"], help="which of l1 and l2")
    parser.add_argument("--repeat", type=int, default=5, help="fits whose median is taken")
    parser.add_argument(
        "--limit", type=float, default=10.0, help="seconds after which a peer is not run tighter"
    )
    parser.add_argument("--table", help="CSV file to write")
    parser.add_argument("--plot", help="image file to write")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # peers warn where a tolerance is out of reach

    data_sets = {name: lambda name=name: load(options.data, name) for name in ("mushrooms", "w7a", "ijcnn1")}
    data_sets |= {"farm-ads": partial(farm_ads, options.data), "wide": wide, "tall": tall}
    data_sets |= {"binary": binary, "classes": classes}
    done, traces = [], []
    for name in options.only or data_sets:
        X, y = data_sets[name]()
        by_columns = X.tocsc() if sparse.issparse(X) else np.asfortranarray(X)
        for case in cases(name, X, y):
            if case.norm in options.norms:
                traces.append(measure(case, X, y, by_columns, options))
                done.append(case)
                report([case])
    print(f"\n{os.cpu_count()} cores")
    report(done)
    print(table(done))
    if options.table:
        write(done, options.table)
    if options.plot:
        draw(done, traces, options.plot)


if __name__ == "__main__":
    main()
