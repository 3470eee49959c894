"""Tabular benchmarks: methods and proxies judged by tables of trained networks."""
