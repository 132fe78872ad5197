"""The history of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, final

import numpy as np
import numpy.typing as npt

_COLUMNS = ("objective", "lower_bound", "gap", "step", "weight", "atoms", "seconds")


@final
@dataclass(frozen=True)
class Trace:
    """A table with one row for each iterate, the start included.

    Columns: the objective of this iterate, the best lower bound so far, the gap between the best objective
    and that bound, the step taken from here (NaN in the last row), the momentum's weight of the newest
    plane, the number of atoms (nonzeros, or rank-one terms), and the seconds since the run began.

    Parameters
    ----------
    began : float
        When the clock started, by ``time.perf_counter()``.
    """

    began: float
    rows: list[tuple[float, ...]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return perf_counter() - self.began

    def add(self, **row: float) -> None:
        """Append a row; `seconds` is filled in."""
        row["seconds"] = self.seconds
        self.rows.append(tuple(row[name] for name in _COLUMNS))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the table as a dictionary of arrays."""
        table = {
            name: np.array(values)
            for name, values in zip(_COLUMNS, zip(*self.rows, strict=True), strict=True)
        }
        table["atoms"] = table["atoms"].astype(np.intp)
        return table
