"""What a fit costs as the data grows: seconds and memory from 1e5 to 1e8 nonzeros, at a fixed support.

In one series the samples grow tenfold, in the other the features. Each fit runs in a process of its own, so
that the peak of its memory can be read; that of the data itself is subtracted.

    python examples/benchmarks/scaling.py --largest 8
"""

import argparse
import multiprocessing
import resource
import warnings
from time import perf_counter

import numpy as np
from scipy import sparse

from skfw import HFWLogisticRegression

N_TRUE = 20


def made(n_samples, n_features, per_row, seed=0):
    """Return sparse data with a few features that matter, each in a fifth of the rows."""
    rng = np.random.default_rng(seed)
    n_entries = n_samples * per_row
    indices = rng.integers(N_TRUE, n_features, n_entries, dtype=np.int32)
    matter = rng.uniform(size=n_entries) < 0.2 * N_TRUE / per_row
    indices[matter] = rng.integers(0, N_TRUE, int(matter.sum()), dtype=np.int32)
    indptr = np.arange(0, n_entries + 1, per_row, dtype=np.int32)
    X = sparse.csr_matrix((rng.normal(size=n_entries), indices, indptr), shape=(n_samples, n_features))
    X.sum_duplicates()
    scores = X[:, :N_TRUE] @ rng.normal(size=N_TRUE)
    y = np.where(rng.uniform(size=n_samples) < 1.0 / (1.0 + np.exp(-2.0 * scores)), 1.0, -1.0)
    return X, y


def measure(n_samples, n_features, per_row, constraint, radius, results):
    """Fit once, and report seconds and peak memory."""
    warnings.simplefilter("ignore")
    X, y = made(n_samples, n_features, per_row)
    model = HFWLogisticRegression(constraint, radius, tol=1e-6)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 1e6
    results.put(
        (X.nnz, size, seconds, max(peak - before, 0) / 1e3, model.n_iter_, np.count_nonzero(model.coef_))
    )


def main():
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--largest", type=int, default=8, help="power of ten of the largest number of nonzeros"
    )
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(
        f"{'growing':8} {'ball':4} {'samples':>9} {'features':>9} {'nonzeros':>10} {'data':>9} {'fit':>9} "
        f"{'per 1e6':>9} {'beyond data':>11} {'iterations':>10} {'support':>7}"
    )
    for growing, constraint in (("samples", "l1"), ("samples", "l2"), ("features", "l1")):
        for power in range(5, options.largest + 1):
            n_samples = 10 ** (power - 2) if growing == "samples" else 10_000
            per_row = 100 if growing == "samples" else 10 ** (power - 4)
            n_features = 10_000 if growing == "samples" else 100 * per_row
            results = context.Queue()
            radius = 10.0 if constraint == "l1" else 3.0
            process = context.Process(
                target=measure, args=(n_samples, n_features, per_row, constraint, radius, results)
            )
            process.start()
            entries, size, seconds, beyond, n_iter, support = results.get()
            process.join()
            print(
                f"{growing:8} {constraint:4} {n_samples:9d} {n_features:9d} {entries:10.2e} {size:6.0f} MB "
                f"{seconds:7.3f} s {1e9 * seconds / entries:6.1f} ms {beyond:8.0f} MB {n_iter:10d} "
                f"{support:7d}",
                flush=True,
            )


if __name__ == "__main__":
    main()
