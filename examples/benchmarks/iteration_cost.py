"""What an iteration costs, in units of the work it cannot avoid.

An iteration needs one product with the transposed data and one evaluation of the loss, and in the l2 ball,
whose atoms are dense, one product with the data. Everything else is overhead. Both are timed in turns in
one run, and the ratio is printed.

    python examples/benchmarks/iteration_cost.py --data DIR

DIR holds mushrooms.bz2, w7a.bz2 and ijcnn1.bz2 from the LIBSVM data page
(https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html).
"""

import argparse
import bz2
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.datasets import load_svmlight_file

from skfw.engine import (
    DesignMatrix,
    Directional,
    L1Ball,
    L2Ball,
    LogisticLoss,
    NSupportBall,
    ParameterFree,
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
        n_samples = len(y)
        loss = LogisticLoss(np.where(y == y.max(), 1.0, -1.0), np.full(n_samples, 1.0 / n_samples))
        design = DesignMatrix(X)
        transposed = X.T.tocsr()
        rng = np.random.default_rng(0)
        residual, model, z = (
            rng.normal(size=n_samples),
            rng.normal(size=X.shape[1]),
            rng.normal(size=n_samples),
        )
        for constraint_name, constraint in CONSTRAINTS.items():
            for step_name, step_rule in STEPS.items():

                def run(constraint=constraint, step_rule=step_rule):
                    frank_wolfe(loss, design, constraint, step_rule=step_rule, max_iter=options.iterations)

                iteration, needed, ratios = [], [], []
                for _ in range(options.rounds):
                    products = seconds_each(lambda: transposed @ residual, options.iterations)
                    if constraint_name == "l2":
                        products += seconds_each(lambda: X @ model, options.iterations)
                    evaluation = seconds_each(lambda: loss.evaluate(z), options.iterations)
                    needed.append(products + evaluation)
                    iteration.append(seconds_each(run, 1) / options.iterations)
                    ratios.append(iteration[-1] / needed[-1])
                print(
                    f"{name:10} {constraint_name:10} {step_name:14} {1e6 * median(iteration):7.0f} us "
                    f"{1e6 * median(needed):7.0f} us {median(ratios):6.2f}"
                )


if __name__ == "__main__":
    main()
