"""Plots and self-contained HTML pages. A result imports this package inside the method that draws it."""
