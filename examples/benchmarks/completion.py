"""Matrix completion against the libraries people use: errors and seconds, side by side in one run.

    python examples/benchmarks/completion.py ratings --data DIR    # MovieLens 100K, the five published splits
    python examples/benchmarks/completion.py larger --data DIR     # MovieLens 1M, two folds of ten
    python examples/benchmarks/completion.py search --data DIR     # the radius: its own search, GridSearchCV
    python examples/benchmarks/completion.py radii --data DIR      # errors along 20 radii, and a picture
    python examples/benchmarks/completion.py users --data DIR      # new users folded in, and recommending
    python examples/benchmarks/completion.py gap --data DIR        # seconds to a certified gap
    python examples/benchmarks/completion.py scale                 # up to 25 million made entries, or more
    python examples/benchmarks/completion.py impute                # data sets of scikit-learn with holes

DIR holds ml-100k/ as published by GroupLens, and the ratings of MovieLens 1M as
ml-1m/ratings_6040x3952_csr.npz, a SciPy sparse matrix. Every model has its parameters chosen by
cross-validation inside the training part, and is then fitted to all of it; the time is that of this fit.
cmfrec and scikit-surprise are in the extra `bench`. Two threads each, as far as they use them. skfw is faster
with its extra `fast` from 300,000 entries on.
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
from sklearn.model_selection import GridSearchCV, KFold

from skfw import HFWImputer, HFWMatrixCompletion, HFWMatrixCompletionCV

N_THREADS = 2
N_FOLDS = 3


def rmse(predictions, values):
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.mean((np.clip(predictions, 1.0, 5.0) - values) ** 2)))


class Skfw:
    """skfw with its defaults: it chooses the radius, and whether to use implicit features."""

    def __init__(self, implicit):
        self.implicit = implicit

    def tune(self, entries, values):
        """Return the radius and the implicit features that predict best in folds."""
        search = HFWMatrixCompletionCV(implicit=self.implicit, cv=N_FOLDS, clip=(1, 5), random_state=0)
        search.fit(entries, values)
        return {"radius": search.radius_, "implicit": search.implicit_}

    def fit(self, entries, values, **params):
        """Fit the model."""
        self.model = HFWMatrixCompletion(**params, clip=(1, 5), random_state=0).fit(entries, values)

    def predict(self, entries):
        """Return the predictions."""
        return self.model.predict(entries)


class Cmfrec:
    """cmfrec's collective matrix factorisation, with its implicit features or without."""

    def __init__(self, grid, implicit):
        self.grid, self.implicit = grid, implicit

    def tune(self, entries, values):
        """Return the number of factors and the penalty that predict best in folds."""
        return best_of_grid(self, entries, values)

    def fit(self, entries, values, **params):
        """Fit the model."""
        import cmfrec
        import pandas as pd

        table = pd.DataFrame({"UserId": entries[:, 0], "ItemId": entries[:, 1], "Rating": values})
        self.model = cmfrec.CMF(
            **params,
            add_implicit_features=self.implicit,
            nthreads=N_THREADS,
            verbose=False,
            random_state=1,
        ).fit(table)

    def predict(self, entries):
        """Return the predictions."""
        return self.model.predict(entries[:, 0], entries[:, 1])


class Surprise:
    """A model of scikit-surprise."""

    def __init__(self, name, grid):
        self.name, self.grid = name, grid

    def tune(self, entries, values):
        """Return the parameters that predict best in folds."""
        return best_of_grid(self, entries, values)

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


def models(cmfrec_grid, svdpp):
    """Return the models by name, SVD++ with a grid of its own or, if that is None, not at all."""
    found = {
        "skfw": Skfw("auto"),
        "skfw, no features": Skfw("none"),
        "cmfrec": Cmfrec(cmfrec_grid, implicit=False),
        "cmfrec, implicit": Cmfrec(cmfrec_grid, implicit=True),
        "Surprise SVD": Surprise("SVD", {"n_factors": (20, 100), "reg_all": (0.02, 0.05, 0.1)}),
    }
    if svdpp is not None:
        found["Surprise SVD++"] = Surprise("SVDpp", svdpp)
    return found


def best_of_grid(model, entries, values):
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
                chosen[name] = model.tune(train, train_values)
        for name, model in models.items():
            start = perf_counter()
            model.fit(train, train_values, **chosen[name])
            seconds = perf_counter() - start
            found[name].append((rmse(model.predict(test), test_values), seconds, chosen[name]))
    print(f"{'model':17} {'RMSE':>8} {'seconds':>8}  by split: RMSE and what was chosen")
    for name, fits in found.items():
        errors, seconds, params = zip(*fits, strict=True)
        by_split = ", ".join(
            f"{error:.4f} "
            + " ".join(f"{value:.3g}" if value != str(value) else value for value in chosen.values())
            for error, chosen in zip(errors, params, strict=True)
        )
        print(f"{name:17} {np.mean(errors):8.4f} {np.median(seconds):8.2f}  {by_split}", flush=True)


def published_splits(folder):
    """Yield training and test parts of MovieLens 100K."""
    for number in range(1, 6):
        parts = []
        for part in ("base", "test"):
            table = np.loadtxt(folder / "ml-100k" / f"u{number}.{part}", dtype=np.int64)
            parts += [table[:, :2], table[:, 2].astype(np.float64)]
        yield parts


def ratings_1m(folder):
    """Return the entries and values of MovieLens 1M."""
    ratings = sparse.load_npz(folder / "ml-1m" / "ratings_6040x3952_csr.npz").tocoo()
    return np.column_stack([ratings.row, ratings.col]).astype(np.int64), ratings.data.astype(np.float64)


def random_splits(folder):
    """Yield training and test parts of MovieLens 1M: the first two folds of ten."""
    entries, values = ratings_1m(folder)
    folds = list(KFold(10, shuffle=True, random_state=0).split(entries))[:2]
    for train, test in folds:
        yield entries[train], values[train], entries[test], values[test]


def search(folder):
    """Print what HFWMatrixCompletionCV and GridSearchCV choose among the same radii, and their time."""
    for implicit in ("none", "both"):
        for number, (train, train_values, test, test_values) in enumerate(published_splits(folder), start=1):
            folds = list(KFold(5, shuffle=True, random_state=0).split(train))
            params = {"implicit": implicit, "clip": (1, 5), "random_state": 0}
            scale = HFWMatrixCompletion(**params, max_iter=1, tol=1.0).fit(train, train_values).radius_
            radii = scale * np.geomspace(0.4, 2.0, 8)
            searches = {
                "HFWMatrixCompletionCV": HFWMatrixCompletionCV(radii, cv=folds, **params),
                "GridSearchCV": GridSearchCV(
                    HFWMatrixCompletion(**params),
                    {"radius": radii},
                    cv=folds,
                    scoring="neg_root_mean_squared_error",
                ),
            }
            for name, model in searches.items():
                start = perf_counter()
                model.fit(train, train_values)
                seconds = perf_counter() - start
                chosen = model.radius_ if hasattr(model, "radius_") else model.best_params_["radius"]
                error = rmse(model.predict(test), test_values)
                print(
                    f"u{number} {implicit:5} {name:22} radius {chosen:6.3f} error {error:.4f} "
                    f"{seconds:6.1f} s",
                    flush=True,
                )


def along_radii(folder, picture):
    """Print the errors on unseen ratings along 20 radii, and how far they go up and down."""
    import matplotlib.pyplot as plt

    train, train_values, test, test_values = next(published_splits(folder))
    figure, axis = plt.subplots(layout="constrained")
    for implicit, name in (("none", "no features"), ("both", "implicit features")):
        params = {"implicit": implicit, "clip": (1, 5), "random_state": 0}
        scale = HFWMatrixCompletion(**params, max_iter=1, tol=1.0).fit(train, train_values).radius_
        shares, errors = np.geomspace(0.05, 3.0, 20), []
        for share in shares:
            model = HFWMatrixCompletion(scale * share, **params).fit(train, train_values)
            errors.append(rmse(model.predict(test), test_values))
        steps = np.diff(errors)
        turns = np.minimum(np.abs(steps[:-1]), np.abs(steps[1:]))[np.sign(steps[:-1]) != np.sign(steps[1:])]
        print(name, " ".join(f"{error:.4f}" for error in errors))
        print(f"{name}: up and down by at most {turns.max(initial=0.0):.5f}", flush=True)
        axis.semilogx(shares, errors, "o-", label=name)
    axis.set(xlabel="radius / default radius", ylabel="error on unseen ratings", title="MovieLens 100K, u1")
    axis.legend()
    figure.savefig(picture, dpi=80)


def new_users(folder):
    """Print errors of users who are folded in against those of a new fit, and the time of recommending."""
    entries, values = ratings_1m(folder)
    rng = np.random.default_rng(0)
    new = np.isin(entries[:, 0], rng.choice(6040, 604, replace=False))
    known = np.isin(entries[:, 1], entries[~new, 1])  # films that nobody else has rated cannot be folded in
    held_out = new & (rng.uniform(size=len(values)) < 0.2)
    for implicit in ("none", "both"):
        params = {"implicit": implicit, "clip": (1, 5), "random_state": 0}
        model = HFWMatrixCompletion(**params).fit(entries[~new], values[~new])
        start = perf_counter()
        model.fold_in(entries[new & ~held_out & known], values[new & ~held_out & known])
        seconds = perf_counter() - start
        refit = HFWMatrixCompletion(**params).fit(entries[~held_out], values[~held_out])
        errors = [rmse(each.predict(entries[held_out]), values[held_out]) for each in (model, refit)]
        print(
            f"{implicit:5} folded in {errors[0]:.4f}, fitted {errors[1]:.4f}; "
            f"{604 / seconds:.0f} users a second, rank {model.rank_}",
            flush=True,
        )
    start = perf_counter()
    refit.recommend(n=10)
    print(f"recommend for all {len(refit.row_ids_)} users: {perf_counter() - start:.2f} s")


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
            implicit="none",
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
    if n_entries > 25_000_000:
        shape = 480_000, 17_770
    else:  # the same share of all entries is known at each size
        side = np.sqrt(n_entries / 25_000_000)
        shape = round(162_000 * side), round(59_000 * side)
    entries, values, test, truth = made(shape, n_entries, 5, 0.2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The truth has no noise to speak of, and wants a larger radius than the default.
    radius = 1.84 * np.sqrt(shape[0] * shape[1] / n_entries)
    model = HFWMatrixCompletion(radius, random_state=0)
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
    for n_entries in (250_000, 2_500_000, 25_000_000, 100_000_000):
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
    parser.add_argument(
        "what", choices=["ratings", "larger", "search", "radii", "users", "gap", "scale", "impute"]
    )
    parser.add_argument("--data", type=Path, help="folder with the MovieLens files")
    parser.add_argument("--picture", default="radii.png", help="for `radii`: where to write it")
    parser.add_argument("--svdpp", action="store_true", help="with SVD++, which takes many minutes")
    parser.add_argument("--largest", type=int, default=25_000_000, help="for `scale`: most entries")
    options = parser.parse_args()
    if options.what == "ratings":
        svdpp = {"n_factors": (20,), "reg_all": (0.02, 0.05)} if options.svdpp else None
        grid = {"k": (5, 10, 20), "lambda_": (5.0, 10.0, 20.0)}
        compare(published_splits(options.data), models(grid, svdpp), tuned_once=False)
    elif options.what == "larger":
        # A larger grid for SVD++ would take hours.
        svdpp = {"n_factors": (20,), "reg_all": (0.05,)} if options.svdpp else None
        grid = {"k": (10, 20, 40), "lambda_": (10.0, 20.0, 30.0)}
        compare(random_splits(options.data), models(grid, svdpp), tuned_once=True)
    elif options.what == "search":
        search(options.data)
    elif options.what == "radii":
        along_radii(options.data, options.picture)
    elif options.what == "users":
        new_users(options.data)
    elif options.what == "gap":
        time_to_gap(options.data)
    elif options.what == "impute":
        impute()
    else:
        scale(options.largest)


if __name__ == "__main__":
    main()
