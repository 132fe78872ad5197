"""Norm-constrained learning for scikit-learn, with a certified optimality gap."""
