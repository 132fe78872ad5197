"""Default threads against one thread, alone and beside processes that keep processors busy.

A laptop, a job of continuous integration and a container with a quota have fewer processors free than they
show. Each case is fitted in turn with BLAS as it is and with BLAS limited to one thread; the table has the
median seconds of the latter, and the ratio.

``python examples/benchmarks/threads.py --busy 0 1 2 [--repeat 5] [--data FOLDER]``
"""

import argparse
import bz2
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits, load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skfw import HFWImputer, HFWLogisticRegression, HFWLogisticRegressionCV, HFWMatrixCompletion


def tall(n_samples, n_features):
    """Return dense data whose classes overlap."""
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(n_samples, n_features)), rng.normal(size=n_features)
    return X, (X @ coef + 2.0 * rng.logistic(size=n_samples) > 0.0).astype(int)


def text(n_samples=8_000, n_words=20_000, n_classes=20, length=80):
    """Return rows of norm one with few words each; some of them tell the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n_samples)
    frequency = 1.0 / np.arange(1, n_words + 1) ** 0.9
    words = rng.choice(n_words, size=(n_samples, length), p=frequency / frequency.sum())
    own = rng.permuted(np.tile(np.arange(n_words), (n_classes, 1)), axis=1)
    telling = rng.uniform(size=words.shape) < 0.15
    words = np.where(telling, own[y[:, np.newaxis], words % 500], words)
    rows = np.repeat(np.arange(n_samples), length)
    X = sparse.csr_matrix((np.ones(words.size), (rows, words.ravel())), shape=(n_samples, n_words))
    return sparse.csr_matrix(X.multiply(1.0 / np.sqrt(X.multiply(X).sum(axis=1)))), y


def ratings(n_rows=2_000, n_columns=1_500, n_entries=600_000, rank=5):
    """Return some entries of a matrix of low rank, with noise."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(n_rows, size=n_entries), rng.integers(n_columns, size=n_entries)
    left, right = rng.normal(size=(n_rows, rank)), rng.normal(size=(n_columns, rank))
    values = np.einsum("ij,ij->i", left[rows], right[columns]) + rng.normal(size=n_entries)
    return np.column_stack([rows, columns]), values


def cases(folder):
    """Yield a name, an estimator and its data."""
    data = tall(100_000, 50)
    for name, estimator in {
        "tall, l1": HFWLogisticRegression("l1", 10.0),
        "tall, l2": HFWLogisticRegression("l2", 5.0),
        "tall, linf": HFWLogisticRegression("linf", 1.0),
        "tall, n-support": HFWLogisticRegression("n_support", 5.0, support_size=5),
        "tall, l2, without correctors": HFWLogisticRegression("l2", 5.0, corrective=False, tol=1e-3),
    }.items():
        yield name, estimator, data
    yield "tall, 200 features, l2", HFWLogisticRegression("l2", 5.0), tall(100_000, 200)
    yield "tall, a million, l2", HFWLogisticRegression("l2", 5.0), tall(1_000_000, 50)
    yield "wide, l1", HFWLogisticRegression("l1", 3.0), tall(1_000, 10_000)
    data = text()
    yield "text of 20 classes, l1", HFWLogisticRegression("l1", 100.0), data
    yield "text of 20 classes, l2", HFWLogisticRegression("l2", 50.0), data
    X, y = load_digits(return_X_y=True)
    yield "digits, nuclear", HFWLogisticRegression("nuclear", 2.0), (X, y)
    yield "digits, cross-validation", HFWLogisticRegressionCV("l2", 5, cv=3, tol=1e-3), (X, y)
    holes = np.where(np.random.default_rng(0).uniform(size=X.shape) < 0.3, np.nan, X)
    yield "digits, imputer", HFWImputer(random_state=0), (holes,)
    yield "600,000 ratings", HFWMatrixCompletion(2.0, random_state=0), ratings()
    if folder:
        for name, radius in (("mushrooms", 30.0), ("w7a", 100.0), ("ijcnn1", 30.0)):
            with bz2.open(Path(folder) / f"{name}.bz2") as file:
                data = load_svmlight_file(file)
            for constraint in ("l1", "l2"):
                yield f"{name}, {constraint}", HFWLogisticRegression(constraint, radius, tol=1e-6), data
        table = np.loadtxt(Path(folder) / "ml-100k" / "u1.base", dtype=int)
        data = table[:, :2], table[:, 2].astype(float)
        yield "MovieLens 100K", HFWMatrixCompletion(4.0, random_state=0), data


@contextmanager
def busy_processes(number):
    """Keep as many processors busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(estimator, data, limit):
    """Return the time of a fit; BLAS has let its threads sleep before."""
    time.sleep(0.1)
    with threadpool_limits(limit, user_api="blas") if limit else nullcontext():
        began = time.perf_counter()
        estimator.fit(*data)
        return time.perf_counter() - began


def main():
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="numbers of busy processes")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--data", help="folder with mushrooms.bz2, w7a.bz2, ijcnn1.bz2 and ml-100k")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    headings = "".join(f"{f'{number} busy':>20}" for number in options.busy)
    print(f"{'one thread: seconds; default: times that':45}{headings}")
    worst = dict.fromkeys(options.busy, 0.0)
    for name, estimator, data in cases(options.data):
        seconds(estimator, data, None)
        row = ""
        for number in options.busy:
            with busy_processes(number):
                rounds = [
                    [seconds(estimator, data, limit) for limit in (1, None)] for _ in range(options.repeat)
                ]
            one, default = np.median(rounds, axis=0)
            worst[number] = max(worst[number], default / one)
            row += f"{one:12.3f}{default / one:8.2f}"
        print(f"{name:45}{row}", flush=True)
    print(f"{'largest':45}" + "".join(f"{worst[number]:20.2f}" for number in options.busy))


if __name__ == "__main__":
    main()
