"""Primal error against iterations in the l2, l1 and n-support balls.

    python examples/paper/binary_classification.py --data DIR

A column of panels for each data set, a row for each ball.
"""

from common import CONSTRAINTS, DATA_SETS, ITERATIONS, draw_curves, load, parse, print_radii
from threadpoolctl import threadpool_limits

VARIANTS = ("FW", "UFW", "WFW", "FW-s", "UFW-s", "WFW-s")


def run(data_sets, iterations=ITERATIONS):
    """Return the primal errors by constraint, data set and variant."""
    return {
        constraint: {
            name: data.problems[constraint].errors(VARIANTS, iterations) for name, data in data_sets.items()
        }
        for constraint in CONSTRAINTS
    }


def draw(results, path):
    """Draw a row of panels for each constraint and a column for each data set."""
    from matplotlib.figure import Figure

    columns = len(results["l2"])
    figure = Figure(figsize=(4 * columns, 9), layout="constrained")
    panels = figure.subplots(len(results), columns, squeeze=False)
    for row, (constraint, by_data) in zip(panels, results.items(), strict=True):
        row[0].set_ylabel("primal error")
        for axes, (name, errors) in zip(row, by_data.items(), strict=True):
            draw_curves(axes, errors)
            axes.set_title(f"{name}, {constraint}")
    panels[0, 0].legend(ncols=2, fontsize="small")
    figure.savefig(path, dpi=120)


def main():
    """Run and draw."""
    options = parse(__doc__)
    data_sets = load(options.data, DATA_SETS)
    print_radii(data_sets)
    draw(run(data_sets), options.figures / "binary_classification.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
