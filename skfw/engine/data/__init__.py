"""The data: design matrices, dense and sparse, and the observed entries of a matrix."""

from ._design_matrix import DenseDesign, DesignMatrix, MappedDesign, SparseDesign, SparseRows, design_matrix
from ._entry_matrix import EntryMatrix
from ._feature_map import FeatureMap
from ._featured_entries import FeaturedEntries, MappedMatrix
from ._observed_entries import ObservedEntries, products_at
from ._sharded_design import Extent, ShardedDesign

__all__ = [
    "DenseDesign",
    "DesignMatrix",
    "EntryMatrix",
    "Extent",
    "FeatureMap",
    "FeaturedEntries",
    "MappedDesign",
    "MappedMatrix",
    "ObservedEntries",
    "ShardedDesign",
    "SparseDesign",
    "SparseRows",
    "design_matrix",
    "products_at",
]
