"""Rows in blocks on a local Dask cluster, against the plain estimator: seconds, passes, and what crosses.

    python examples/benchmarks/blocks.py                    # 1e8 nonzeros
    python examples/benchmarks/blocks.py --rows 100000      # fewer

Made sparse data, logistic regression in an l2 and in an l1 ball, to the default tolerance. The plain
estimator has both cores, each worker is a process with one thread. Bytes are those of what is sent to the
blocks and of the sums that come back to the client, pickled; workers send sums to each other beside that.
"""

import argparse
import pickle
from itertools import pairwise
from time import perf_counter

import dask.array
import numpy as np
from distributed import Client, LocalCluster, wait
from scipy import sparse

from skfw import HFWLogisticRegression
from skfw.dask import DaskHFWLogisticRegression
from skfw.dask._cluster import OnCluster

N_FEATURES, N_NONZEROS = 10_000, 100
RADII = {"l2": 10.0, "l1": 100.0}


def made(first, last):
    """Return some rows of the data, and the labels."""
    weights = np.random.default_rng(0).normal(size=N_FEATURES) / 3.0
    rng = np.random.default_rng([1, first])
    n_rows, share = last - first, N_FEATURES // N_NONZEROS
    columns = rng.integers(0, share, (n_rows, N_NONZEROS)) + share * np.arange(N_NONZEROS)
    stored = rng.normal(size=columns.size), columns.ravel().astype(np.int32)
    starts = np.arange(0, columns.size + 1, N_NONZEROS, dtype=np.int32)
    X = sparse.csr_matrix((*stored, starts), shape=(n_rows, N_FEATURES))
    return X, (X @ weights + rng.logistic(size=n_rows) > 0.0).astype(np.int8)


def collections(n_rows, n_blocks):
    """Return the same data as dask arrays of CSR blocks."""
    ends = np.linspace(0, n_rows, n_blocks + 1).astype(int)
    parts = [dask.delayed(made, nout=2)(a, b) for a, b in pairwise(ends.tolist())]
    X = [
        dask.array.from_delayed(part[0], (length, N_FEATURES), meta=sparse.csr_matrix((0, 0)))
        for part, length in zip(parts, np.diff(ends).tolist(), strict=True)
    ]
    y = [
        dask.array.from_delayed(part[1], (length,), dtype=np.int8)
        for part, length in zip(parts, np.diff(ends).tolist(), strict=True)
    ]
    return dask.array.concatenate(X), dask.array.concatenate(y)


class Counter:
    """Counts passes, and bytes that cross."""

    def __init__(self):
        self.passes = self.sent = self.received = 0
        run, gather = OnCluster.run, OnCluster.gather

        def counting_run(runner, function, shared, pieces):
            self.passes += 1
            self.sent += len(pickle.dumps(shared))
            return run(runner, function, shared, pieces)

        def counting_gather(runner, handles):
            found = gather(runner, handles)
            self.received += len(pickle.dumps(found))
            return found

        OnCluster.run, OnCluster.gather = counting_run, counting_gather


def main():
    """Fit in one process, then on one worker and on two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=8)
    options = parser.parse_args()
    ends = np.linspace(0, options.rows, options.blocks + 1).astype(int)
    parts = [made(a, b) for a, b in pairwise(ends.tolist())]
    X, y = sparse.vstack([X for X, _ in parts], format="csr"), np.concatenate([y for _, y in parts])
    del parts
    expected = {}
    for constraint, radius in RADII.items():
        start = perf_counter()
        expected[constraint] = model = HFWLogisticRegression(constraint, radius).fit(X, y)
        print(
            f"{constraint} plain, {X.nnz:.1e} nonzeros: {perf_counter() - start:6.1f} s, gap {model.gap_:.1e}"
        )
    del X, y
    counter = Counter()
    for n_workers in (1, 2):
        options_of_cluster = {"threads_per_worker": 1, "memory_limit": "10GB", "dashboard_address": ":0"}
        with LocalCluster(n_workers=n_workers, **options_of_cluster) as cluster, Client(cluster) as client:
            X, y = client.persist(collections(options.rows, options.blocks))
            wait([X, y])
            for constraint, radius in RADII.items():
                counter.passes = counter.sent = counter.received = 0
                start = perf_counter()
                model = DaskHFWLogisticRegression(constraint, radius).fit(X, y)
                seconds = perf_counter() - start
                plain = expected[constraint]
                print(
                    f"{constraint} {n_workers} worker(s): {seconds:6.1f} s, {counter.passes} passes of "
                    f"{seconds / counter.passes:.2f} s, sent {counter.sent / 1e6:.1f} MB, received "
                    f"{counter.received / 1e6:.1f} MB, gap {model.gap_:.1e}, objective "
                    f"{model.objective_ - plain.objective_:+.1e} of the plain one's",
                    flush=True,
                )


if __name__ == "__main__":
    main()
