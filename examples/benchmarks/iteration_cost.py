"""What an iteration costs, relative to the work it cannot avoid.

An iteration needs one product with the transposed data and one evaluation of the loss, and in the l2 ball,
whose atoms are dense, one product with the data. Everything else is overhead. Both are timed in turns in
one run, on one thread, and the ratio is printed.

    python examples/benchmarks/iteration_cost.py --data DIR

DIR holds mushrooms.bz2, w7a.bz2 and ijcnn1.bz2 from the LIBSVM data page
(https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html).
"""

import argparse
import bz2
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

from skfw.engine import (
    Directional,
    L1Ball,
    L2Ball,
    LogisticLoss,
    NSupportBall,
    ParameterFree,
    Problem,
    design_matrix,
    frank_wolfe,
)

DATA_SETS = ("mushrooms", "w7a", "ijcnn1")
CONSTRAINTS = {"l1": L1Ball(70.0), "l2": L2Ball(70.0), "n_support": NSupportBall(70.0, 2)}
STEPS = {"parameter_free": ParameterFree(), "directional": Directional()}


def seconds_each(function, repeat):
    """Time one call, as the mean of `repeat` calls in a row."""
    start = perf_counter()
    for _ in range(repeat):
        function()
    return (perf_counter() - start) / repeat


def compare(X, y, constraint, step_rule, iterations, rounds):
    """Time iterations and the work they need in turns; return medians of both and of their ratio."""
    n_samples = len(y)
    loss = LogisticLoss(np.where(y == y.max(), 1.0, -1.0), np.full(n_samples, 1.0 / n_samples))
    problem, transposed = Problem(loss, design_matrix(X), constraint), X.T.tocsr()
    rng = np.random.default_rng(0)
    residual, model, z = (rng.normal(size=size) for size in (n_samples, X.shape[1], n_samples))
    iteration, needed = [], []
    for _ in range(rounds):
        work = seconds_each(lambda: transposed @ residual, iterations)
        if isinstance(constraint, L2Ball):
            work += seconds_each(lambda: X @ model, iterations)
        work += seconds_each(lambda: loss.evaluate(z), iterations)
        run = seconds_each(lambda: frank_wolfe(problem, step_rule=step_rule, max_iter=iterations), 1)
        needed.append(work)
        iteration.append(run / iterations)
    return median(iteration), median(needed), median(np.divide(iteration, needed))


def main():
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the LIBSVM files")
    parser.add_argument("--iterations", type=int, default=100, help="iterations of one run")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each, in turns; medians are taken")
    options = parser.parse_args()

    print(f"{'data':10} {'constraint':10} {'step':14} {'iteration':>10} {'needed':>10} {'ratio':>6}")
    for name in DATA_SETS:
        with bz2.open(options.data / f"{name}.bz2") as file:
            X, y = load_svmlight_file(file)
        for (label, constraint), (step, rule) in product(CONSTRAINTS.items(), STEPS.items()):
            iteration, needed, ratio = compare(X, y, constraint, rule, options.iterations, options.rounds)
            times = f"{1e6 * iteration:7.0f} us {1e6 * needed:7.0f} us"
            print(f"{name:10} {label:10} {step:14} {times} {ratio:6.2f}")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
