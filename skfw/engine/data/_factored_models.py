"""What all data with factored models share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._atoms import FactoredMatrix
from .._protocols import Array, Entries, SampleVector


class FactoredModels(Entries):
    """Entries of matrices that are known by their factors."""

    def zeros(self) -> FactoredMatrix:
        """Return the zero matrix, in factored form."""
        return FactoredMatrix.zeros(self.shape)

    def compressed(self, x: FactoredMatrix) -> FactoredMatrix:
        """Return the matrix with as many terms as its rank; what cancels between terms is gone."""
        return FactoredMatrix.from_svd(*x.svd())

    def n_atoms(self, x: FactoredMatrix) -> int:
        """Return the number of rank-one terms."""
        return len(x)

    def apply(self, x: FactoredMatrix) -> SampleVector:
        """Return the predictions of a factored matrix."""
        return self.products(x.left * x.weights, x.right)

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> SampleVector:
        """Not available: a set of sparse matrices has no use for the factored iterate."""
        raise TypeError("Observed entries need a constraint with rank-one atoms, such as NuclearBall.")
