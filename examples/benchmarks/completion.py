"""Matrix completion against the libraries people use: errors and seconds, side by side in one run.

    python examples/benchmarks/completion.py ratings --data DIR    # MovieLens 100K, the five published splits
    python examples/benchmarks/completion.py larger --data DIR     # MovieLens 1M, two folds of ten
    python examples/benchmarks/completion.py gap --data DIR        # seconds to a certified gap
    python examples/benchmarks/completion.py scale                 # 25 million made entries
    python examples/benchmarks/completion.py impute                # data sets of scikit-learn with holes

DIR holds ml-100k/ as published by GroupLens, and the ratings of MovieLens 1M as
ml-1m/ratings_6040x3952_csr.npz, a SciPy sparse matrix. Every model has one or two parameters chosen by
cross-validation inside the training part, and is then fitted to all of it; the time is that of this fit.
cmfrec and scikit-surprise are in the extra `bench`. Two threads each, as far as they use them.
"""

import argparse
import multiprocessing
import resource
import warnings
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.model_selection import KFold

from skfw import HFWImputer, HFWMatrixCompletion

N_THREADS = 2
N_FOLDS = 3


def rmse(predictions, values):
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.mean((np.clip(predictions, 1.0, 5.0) - values) ** 2)))


class Skfw:
    """skfw with its defaults, for a radius."""

    def __init__(self, radii):
        self.grid = {"radius": radii}

    def fit(self, entries, values, radius):
        """Fit the model."""
        self.model = HFWMatrixCompletion(radius, clip=(1, 5), random_state=0).fit(entries, values)

    def predict(self, entries):
        """Return the predictions."""
        return self.model.predict(entries)


class Cmfrec:
    """cmfrec's collective matrix factorisation, without side information."""

    def __init__(self):
        self.grid = {"k": (5, 10, 20), "lambda_": (5.0, 10.0, 20.0)}

    def fit(self, entries, values, **params):
        """Fit the model."""
        import cmfrec
        import pandas as pd

        table = pd.DataFrame({"UserId": entries[:, 0], "ItemId": entries[:, 1], "Rating": values})
        self.model = cmfrec.CMF(**params, nthreads=N_THREADS, verbose=False, random_state=1).fit(table)

    def predict(self, entries):
        """Return the predictions."""
        return self.model.predict(entries[:, 0], entries[:, 1])


class Surprise:
    """A model of scikit-surprise."""

    def __init__(self, name, grid):
        self.name, self.grid = name, grid

    def fit(self, entries, values, **params):
        """Fit the model."""
        import pandas as pd
        import surprise

        table = pd.DataFrame({"user": entries[:, 0], "item": entries[:, 1], "rating": values})
        data = surprise.Dataset.load_from_df(table, surprise.Reader(rating_scale=(1, 5)))
        self.model = getattr(surprise, self.name)(random_state=0, **params).fit(data.build_full_trainset())

    def predict(self, entries):
        """Return the predictions."""
        return np.array([self.model.predict(user, item).est for user, item in entries])


def models(radii, svdpp):
    """Return the models by name, SVD++ with a grid of its own or, if that is None, not at all."""
    found = {
        "skfw": Skfw(radii),
        "cmfrec": Cmfrec(),
        "Surprise SVD": Surprise("SVD", {"n_factors": (20, 100), "reg_all": (0.02, 0.05, 0.1)}),
    }
    if svdpp is not None:
        found["Surprise SVD++"] = Surprise("SVDpp", svdpp)
    return found


def tune(model, entries, values):
    """Return the parameters with the smallest error in folds of the training part."""
    choices = [dict(zip(model.grid, choice, strict=True)) for choice in product(*model.grid.values())]
    if len(choices) == 1:
        return choices[0]
    errors = np.zeros(len(choices))
    for train, test in KFold(N_FOLDS, shuffle=True, random_state=0).split(entries):
        for number, params in enumerate(choices):
            model.fit(entries[train], values[train], **params)
            errors[number] += rmse(model.predict(entries[test]), values[test])
    return choices[int(errors.argmin())]


def compare(splits, models, tuned_once):
    """Print errors, seconds and parameters of all models on all splits, fitted in turn."""
    found, chosen = {name: [] for name in models}, {}
    for number, (train, train_values, test, test_values) in enumerate(splits):
        for name, model in models.items():
            if number == 0 or not tuned_once:
                chosen[name] = tune(model, train, train_values)
        for name, model in models.items():
            start = perf_counter()
            model.fit(train, train_values, **chosen[name])
            seconds = perf_counter() - start
            found[name].append((rmse(model.predict(test), test_values), seconds, chosen[name]))
    print(f"{'model':15} {'RMSE':>8} {'seconds':>8}  by split: RMSE and what was chosen")
    for name, fits in found.items():
        errors, seconds, params = zip(*fits, strict=True)
        by_split = ", ".join(
            f"{error:.4f} " + " ".join(f"{value:g}" for value in chosen.values())
            for error, chosen in zip(errors, params, strict=True)
        )
        print(f"{name:15} {np.mean(errors):8.4f} {np.median(seconds):8.2f}  {by_split}", flush=True)


def published_splits(folder):
    """Yield training and test parts of MovieLens 100K."""
    for number in range(1, 6):
        parts = []
        for part in ("base", "test"):
            table = np.loadtxt(folder / "ml-100k" / f"u{number}.{part}", dtype=np.int64)
            parts += [table[:, :2], table[:, 2].astype(np.float64)]
        yield parts


def random_splits(folder):
    """Yield training and test parts of MovieLens 1M: the first two folds of ten."""
    ratings = sparse.load_npz(folder / "ml-1m" / "ratings_6040x3952_csr.npz").tocoo()
    entries = np.column_stack([ratings.row, ratings.col]).astype(np.int64)
    values = ratings.data.astype(np.float64)
    folds = list(KFold(10, shuffle=True, random_state=0).split(entries))[:2]
    for train, test in folds:
        yield entries[train], values[train], entries[test], values[test]


def time_to_gap(folder):
    """Print seconds and rank at certified gaps, with and without correctors, in the paper's preparation."""
    warnings.simplefilter("ignore")  # not all get there
    table = np.loadtxt(folder / "ml-100k" / "u.data", dtype=np.int64)
    entries, values = table[:, :2], table[:, 2].astype(np.float64)
    print(f"{'gap':>6} {'corrective':>10} {'seconds':>8} {'steps':>6} {'rank':>5} {'reached':>9}")
    for tol, corrective in product((1e-2, 1e-3), (True, False)):
        model = HFWMatrixCompletion(
            3.0,
            constraint="nuclear",
            bias_penalty=None,
            corrective=corrective,
            tol=tol,
            max_iter=1000 if corrective else 700,  # enough to tell
            random_state=0,
        )
        start = perf_counter()
        model.fit(entries, values)
        seconds = perf_counter() - start
        reached = model.gap_ / model.trace_["objective"][0]
        print(
            f"{tol:6.0e} {corrective!s:>10} {seconds:8.2f} {model.n_iter_:6d} {model.rank_:5d} "
            f"{reached:9.1e}",
            flush=True,
        )


def made(shape, n_entries, rank, noise, seed=0):
    """Return entries of a matrix of low rank, and another million of them without noise."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(shape[0], rank)), rng.normal(size=(shape[1], rank))
    # Some rows and columns have many more entries than others.
    popularity = [np.sort(rng.pareto(2.0, length) + 0.2) for length in shape]
    wanted, positions = n_entries + 1_000_000, np.zeros(0, dtype=np.int64)
    while len(positions) < wanted:
        rows, columns = (
            np.searchsorted(np.cumsum(p[:-1]) / p.sum(), rng.uniform(size=wanted // 2)) for p in popularity
        )
        positions = np.sort(np.concatenate([positions, rows * shape[1] + columns]))
        positions = positions[np.diff(positions, append=-1) != 0]  # each place once
    rows, columns = np.divmod(rng.permutation(positions)[:wanted], shape[1])
    values = np.zeros(wanted)
    for k in range(rank):
        values += left[rows, k] * right[columns, k]
    values /= np.sqrt(rank)
    entries = np.column_stack([rows, columns])
    noisy = values[:n_entries] + noise * rng.normal(size=n_entries)
    return entries[:n_entries], noisy, entries[n_entries:], values[n_entries:]


def measure_scale(n_entries, results):
    """Fit once, and report."""
    warnings.simplefilter("ignore")
    # The same share of all entries is known at each size, so the same radius suits the truth.
    side = np.sqrt(n_entries / 25_000_000)
    entries, values, test, truth = made((round(162_000 * side), round(59_000 * side)), n_entries, 5, 0.2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = HFWMatrixCompletion(36.0, random_state=0)
    start = perf_counter()
    model.fit(entries, values)
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    error = np.sqrt(np.mean((model.predict(test) - truth) ** 2) / np.mean(truth**2))
    predicting = perf_counter() - start
    gap = model.gap_ / model.trace_["objective"][0]
    results.put((seconds, before / 1e6, peak / 1e6, error, gap, model.rank_, model.n_iter_, predicting))


def scale(largest):
    """Print seconds, memory and error as the number of entries grows, each fit in a process of its own."""
    context = multiprocessing.get_context("spawn")
    print(
        f"{'entries':>9} {'seconds':>8} {'peak GB':>8} {'with data':>9} {'error':>7} {'gap':>8} {'rank':>5} "
        f"{'steps':>5} {'predict 1e6':>11}"
    )
    for n_entries in (250_000, 2_500_000, 25_000_000):
        if n_entries > largest:
            break
        results = context.Queue()
        process = context.Process(target=measure_scale, args=(n_entries, results))
        process.start()
        seconds, before, peak, error, gap, rank, steps, predicting = results.get()
        process.join()
        print(
            f"{n_entries:9d} {seconds:8.1f} {peak - before:8.2f} {peak:9.2f} {error:7.4f} {gap:8.1e} "
            f"{rank:5d} {steps:5d} {predicting:9.2f} s",
            flush=True,
        )


def impute():
    """Print errors and seconds of imputers where 30 % of the values are missing at random."""
    imputers = {
        "mean": SimpleImputer(),
        "KNNImputer": KNNImputer(),
        "IterativeImputer": IterativeImputer(random_state=0),
        "HFWImputer": HFWImputer(random_state=0),
    }
    warnings.simplefilter("ignore")  # IterativeImputer seldom converges in its ten rounds
    print(f"{'data':20} {'imputer':17} {'error':>6} {'seconds':>8}   error in standard deviations")
    for load in (load_digits, load_breast_cancer, load_wine, load_diabetes):
        X = load().data
        X = X[:, X.std(axis=0) > 0]
        holes = np.random.default_rng(0).uniform(size=X.shape) < 0.3
        for name, imputer in imputers.items():
            start = perf_counter()
            completed = imputer.fit_transform(np.where(holes, np.nan, X))
            seconds = perf_counter() - start
            error = np.sqrt(np.mean(((completed - X) / X.std(axis=0))[holes] ** 2))
            print(f"{load.__name__[5:]:20} {name:17} {error:6.3f} {seconds:8.2f}", flush=True)


def main():
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["ratings", "larger", "gap", "scale", "impute"])
    parser.add_argument("--data", type=Path, help="folder with the MovieLens files")
    parser.add_argument("--svdpp", action="store_true", help="with SVD++, which takes many minutes")
    parser.add_argument("--largest", type=int, default=25_000_000, help="for `scale`: most entries")
    options = parser.parse_args()
    if options.what == "ratings":
        svdpp = {"n_factors": (20,), "reg_all": (0.02, 0.05)} if options.svdpp else None
        compare(published_splits(options.data), models((2.0, 3.0, 4.0, 5.0), svdpp), tuned_once=False)
    elif options.what == "larger":
        # A larger grid for SVD++ would take hours.
        svdpp = {"n_factors": (20,), "reg_all": (0.05,)} if options.svdpp else None
        compare(random_splits(options.data), models((4.0, 6.0, 8.0, 10.0), svdpp), tuned_once=True)
    elif options.what == "gap":
        time_to_gap(options.data)
    elif options.what == "impute":
        impute()
    else:
        scale(options.largest)


if __name__ == "__main__":
    main()
