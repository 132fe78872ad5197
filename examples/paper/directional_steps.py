"""Smooth steps with the curvature along the line (-ds) against those with a global one (-s).

    python examples/paper/directional_steps.py --data DIR

On mushrooms and ijcnn1, in the l2 and l1 balls.
"""

from common import ITERATIONS, draw_curves, load, parse, print_radii
from threadpoolctl import threadpool_limits

DATA_SETS = ("mushrooms", "ijcnn1")
CONSTRAINTS = ("l2", "l1")
VARIANTS = ("FW-s", "UFW-s", "WFW-s", "FW-ds", "UFW-ds", "WFW-ds")


def run(data_sets, iterations=ITERATIONS):
    """Return the primal errors by constraint, data set and variant."""
    return {
        constraint: {
            name: data_sets[name].problems[constraint].errors(VARIANTS, iterations) for name in DATA_SETS
        }
        for constraint in CONSTRAINTS
    }


def draw(results, path):
    """Draw a panel for each constraint and data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 3.5), layout="constrained")
    panels = iter(figure.subplots(1, len(CONSTRAINTS) * len(DATA_SETS)))
    for constraint, by_data in results.items():
        for name, errors in by_data.items():
            axes = next(panels)
            draw_curves(axes, errors)
            axes.set_title(f"{name}, {constraint}")
    figure.axes[0].set_ylabel("primal error")
    figure.axes[0].legend(ncols=2, fontsize="small")
    figure.savefig(path, dpi=120)


def main():
    """Run and draw."""
    options = parse(__doc__)
    data_sets = load(options.data, DATA_SETS)
    print_radii(data_sets)
    draw(run(data_sets), options.figures / "directional_steps.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
