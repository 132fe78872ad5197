"""
An image from some of its pixels
================================

A photograph has nearly low rank. From four tenths of its pixels the rest is completed.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from skfw import CompletionDisplay, HFWMatrixCompletion, matrix_to_entries

image = load_sample_image("flower.jpg")[::2, ::2].mean(axis=2)
rng = np.random.default_rng(0)
holes = rng.uniform(size=image.shape) > 0.4
entries, values = matrix_to_entries(np.where(holes, np.nan, image))

model = HFWMatrixCompletion(radius=4, clip=(0, 255), random_state=0).fit(entries, values)
everywhere = np.argwhere(np.ones_like(image))
completed = model.predict(everywhere).reshape(image.shape)
error = np.sqrt(np.mean((completed - image)[holes] ** 2))
print(f"rank {model.rank_}, error of the hidden pixels {error:.1f} of 255; they vary by {image.std():.1f}")

display = CompletionDisplay.from_estimator(model, entries, values, truth=image, cmap="gray", aspect="equal")
display.figure_.set_size_inches(9.6, 2.8)

# %%
# The singular values of the low-rank part, beside the biases of rows and columns:

CompletionDisplay.from_estimator(model, entries, values, kind="singular_values")
plt.show()
