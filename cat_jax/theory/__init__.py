"""The paper's theory in numbers: its two theorems and its boundaries, in the plane."""
