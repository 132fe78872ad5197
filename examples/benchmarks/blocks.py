"""Rows in blocks on a local Dask cluster, against the plain estimator: seconds, passes, and what crosses.

    python examples/benchmarks/blocks.py                    # 1e8 nonzeros
    python examples/benchmarks/blocks.py --rows 100000      # fewer
    python examples/benchmarks/blocks.py --repeat 3         # fits with one and with two workers, by turns
    python examples/benchmarks/blocks.py --limit 600MB      # files three times as large as two such workers

Made sparse data, logistic regression in an l2 and in an l1 ball, to the default tolerance. The plain
estimator has both cores, each worker is a process with one thread. Bytes are those of what is sent to the
blocks and of the sums that come back to the client, pickled; workers send sums to each other beside that.
With `--limit` the data is dense, in files of a temporary folder, and the peak memory of each process is told
(of Linux only).
"""

import argparse
import os
import pickle
import re
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import dask.array
import numpy as np
from dask.utils import parse_bytes
from distributed import Client, LocalCluster, wait
from scipy import sparse

from skfw import HFWLogisticRegression
from skfw.dask import DaskHFWLogisticRegression
from skfw.dask._cluster import OnCluster

N_FEATURES, N_NONZEROS = 10_000, 100
RADII = {"l2": 10.0, "l1": 100.0}
# The coefficients that generate the labels are larger, of the dense data too.
DENSE_RADII = {"l2": 2.0, "l1": 30.0}


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


def write(folder, number, n_rows, n_features):
    """Write a block of dense rows, and their labels."""
    weights = 3.0 * np.random.default_rng(0).normal(size=n_features) / np.sqrt(n_features)
    rng = np.random.default_rng([2, number])
    X = rng.normal(size=(n_rows, n_features))
    np.save(folder / f"X{number}.npy", X)
    np.save(folder / f"y{number}.npy", X @ weights + rng.logistic(size=n_rows) > 0.0)


def on_disk(folder, n_blocks, n_rows, n_features):
    """Return what was written as dask arrays."""
    parts = [
        [dask.delayed(np.load)(str(folder / f"{name}{k}.npy")) for k in range(n_blocks)] for name in "Xy"
    ]
    X = [dask.array.from_delayed(part, (n_rows, n_features), dtype=float) for part in parts[0]]
    y = [dask.array.from_delayed(part, (n_rows,), dtype=bool) for part in parts[1]]
    return dask.array.concatenate(X), dask.array.concatenate(y)


def peak():
    """Return the largest memory of this process so far, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1000.0


def written(dask_worker):
    """Return the MB that a worker has written to its disk, because it had no memory for them."""
    metrics = dask_worker.data.cumulative_metrics
    return sum(value for key, value in metrics.items() if key == ("disk-write", "bytes")) / 1e6


class Counter:
    """Counts passes, and bytes that cross."""

    def __init__(self):
        self.passes = self.sent = self.received = 0
        one_pass, run, gather = OnCluster.map, OnCluster.run, OnCluster.gather

        def counting_map(runner, *arguments):
            self.passes += 1
            return one_pass(runner, *arguments)

        def counting_run(runner, function, shared, pieces):
            self.sent += len(pickle.dumps(shared))
            return run(runner, function, shared, pieces)

        def counting_gather(runner, handles):
            found = gather(runner, handles)
            self.received += len(pickle.dumps(found))
            return found

        OnCluster.map, OnCluster.run, OnCluster.gather = counting_map, counting_run, counting_gather

    def fit(self, name, constraint, radius, X, y):
        """Fit to collections, and print what it takes."""
        self.passes = self.sent = self.received = 0
        start = perf_counter()
        model = DaskHFWLogisticRegression(constraint, radius).fit(X, y)
        seconds = perf_counter() - start
        print(
            f"{constraint} {name}: {seconds:6.1f} s, {model.n_iter_} iterations, {self.passes} passes of "
            f"{seconds / self.passes:.2f} s, sent {self.sent / 1e6:.1f} MB, received "
            f"{self.received / 1e6:.1f} MB, gap {model.gap_:.1e}, objective {model.objective_:.8f}",
            flush=True,
        )
        return seconds


def in_memory(n_rows, n_blocks, repeat):
    """Fit in one process, then on one worker and on two, by turns."""
    ends = np.linspace(0, n_rows, n_blocks + 1).astype(int)
    parts = [made(a, b) for a, b in pairwise(ends.tolist())]
    X, y = sparse.vstack([X for X, _ in parts], format="csr"), np.concatenate([y for _, y in parts])
    del parts
    for constraint, radius in RADII.items():
        start = perf_counter()
        model = HFWLogisticRegression(constraint, radius).fit(X, y)
        seconds = perf_counter() - start
        print(
            f"{constraint} plain, {X.nnz:.1e} nonzeros: {seconds:6.1f} s, gap {model.gap_:.1e}, objective "
            f"{model.objective_:.8f}"
        )
    del X, y
    counter, times = Counter(), {}
    for _ in range(repeat):
        for n_workers in (1, 2):
            with cluster_of(n_workers, "10GB") as client:
                X, y = client.persist(collections(n_rows, n_blocks))
                wait([X, y])
                for constraint, radius in RADII.items():
                    seconds = counter.fit(f"{n_workers} worker(s)", constraint, radius, X, y)
                    times.setdefault((constraint, n_workers), []).append(seconds)
    for constraint in RADII:
        one, two = (np.median(times[constraint, n_workers]) for n_workers in (1, 2))
        print(f"{constraint}: one worker {one:.1f} s, two {two:.1f} s, {one / two:.2f} times")


def beyond_memory(limit, n_rows=5_000, n_features=1_000):
    """Fit to files that are three times as large as the memory of two workers."""
    n_blocks = -(-3 * 2 * parse_bytes(limit) // (8 * n_rows * n_features))
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(n_blocks):
            write(folder, number, n_rows, n_features)
        counter = Counter()
        for constraint, radius in DENSE_RADII.items():
            with cluster_of(2, limit) as client:
                X, y = on_disk(folder, n_blocks, n_rows, n_features)
                before = list(client.run(os.getpid).values())
                counter.fit(f"{X.nbytes / 1e9:.1f} GB, two workers of {limit}", constraint, radius, X, y)
                alive = (
                    "none was restarted" if list(client.run(os.getpid).values()) == before else "restarted"
                )
                peaks = ", ".join(f"{each:.0f}" for each in client.run(peak).values())
                spilled = sum(client.run(written).values())
                print(
                    f"   peak memory: workers {peaks} MB ({alive}), client {peak():.0f} MB; spilled "
                    f"{spilled:.1f} MB",
                    flush=True,
                )


@contextmanager
def cluster_of(n_workers, memory_limit):
    """Yield the client of a local cluster of processes with one thread each."""
    options = {"threads_per_worker": 1, "memory_limit": memory_limit, "dashboard_address": ":0"}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
        yield client


def main():
    """Run one of the two comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--limit")
    options = parser.parse_args()
    if options.limit:
        beyond_memory(options.limit)
    else:
        in_memory(options.rows, options.blocks, options.repeat)


if __name__ == "__main__":
    main()
