"""An exact frontier from your own numbers: no data, no training, no torch.

Three stages, each with a depth and two blocks; the second block runs at depth 2 only.
"""

import numpy as np

from sartor import Limit, Quadratic
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.solvers.frontier import frontier

rng = np.random.default_rng(0)
sizes = (2, 4, 4) * 3  # depth 1 or 2, then four configurations a block
linear, pairs, prices, pair_prices = {}, {}, {}, {}
for stage in range(3):
    depth, first, second = 3 * stage, 3 * stage + 1, 3 * stage + 2
    linear[depth], linear[first] = np.array([0.0, 0.5]), rng.uniform(0, 2, 4)
    prices[first] = 1 + linear[first] + rng.uniform(0, 1, 4)
    gain = rng.uniform(0, 2, 4)
    pairs[depth, second] = np.stack([np.zeros(4), gain])  # due at depth 2 only
    pair_prices[depth, second] = np.stack([np.zeros(4), 1 + gain + rng.uniform(0, 1, 4)])
accuracy = Quadratic(sizes, 70.0, linear, pairs)
latency = Quadratic(sizes, 1.0, prices, pair_prices)

points = frontier(accuracy, latency)
print(f"{np.prod(sizes)} encodings, {len(points)} optimal trade-offs:")
for n in range(0, len(points), max(1, len(points) // 6)):
    print(f"  {points.cost[n]:6.2f} ms  {points.score[n]:6.2f} %  {points.arch(n).picks}")

best = solve(Problem(accuracy, (Limit("latency", latency, high=9.0),)))
print(f"inside 9 ms: {best.score:.2f} %, proven optimal: {best.proven}, {best.arch.picks}")
