"""What two correlations say of a third: the bound of BINAS, equation 46, and the same on measured networks.

NAS-Bench-201 in the supernet's place: P is an additive score fitted to some networks' validation accuracy after 12
epochs, O that accuracy of all others, S their test accuracy when trained in full.

    SARTOR_TEST_DATA=.../data python reproduce/binas_transitivity.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr

from sartor.core.errors import BadInput
from sartor.predictors.linear import LeastSquares
from sartor.spaces.nasbench201.space import NasBench201


def transitivity_bound(predicted_supernet: float, supernet_alone: float) -> float:
    """The least correlation of predictions with networks trained alone that two known correlations allow.

    ``Cor(P, S) >= Cor(P, O) Cor(O, S) - sqrt((1 - Cor(P, O)^2) (1 - Cor(O, S)^2))`` (BINAS, equation 46),
    with P predicted, O measured in the supernet, S trained alone. It holds for Pearson's and, as
    Pearson's on ranks, for Spearman's correlation; not for Kendall's.
    """
    one, two = float(predicted_supernet), float(supernet_alone)
    if not (-1 <= one <= 1 and -1 <= two <= 1):
        raise BadInput(f"correlations must lie between -1 and 1, but got {one} and {two}.")
    return one * two - float(np.sqrt((1 - one**2) * (1 - two**2)))


def measured(networks: int = 400, seeds: int = 5) -> list[dict[str, float]]:
    """The three correlations and the bound, for Pearson's and Spearman's, every seed with other networks."""
    from nasi_data import nasbench201

    table, rows = nasbench201(), []
    short, full = table.column("cifar10_valid_12"), table.column("cifar10_test_200")
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order = rng.permutation(np.flatnonzero(np.isfinite(short) & np.isfinite(full)))
        some, rest = order[:networks], order[networks:]
        score = LeastSquares().fit(table.picks[some], short[some], NasBench201().choices, rng)
        predicted = score.batch(table.picks[rest])
        for name, of in (("pearson", pearsonr), ("spearman", spearmanr)):
            p_o, o_s, p_s = (float(of(*two).statistic) for two in (
                (predicted, short[rest]), (short[rest], full[rest]), (predicted, full[rest])))  # fmt: skip
            rows.append({"seed": seed, "kind": name, "predicted_short": p_o, "short_full": o_s,
                         "predicted_full": p_s, "bound": transitivity_bound(p_o, o_s)})  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from _record import parser, record

    parser(__doc__).parse_args()

    found = measured()
    means = {
        kind: {
            k: float(np.mean([r[k] for r in found if r["kind"] == kind])) for k in found[0] if k not in ("seed", "kind")
        }
        for kind in ("pearson", "spearman")
    }
    print(
        record(
            "binas_transitivity",
            {**means, "holds": all(r["predicted_full"] >= r["bound"] for r in found), "runs": found},
        )
    )
    print(means)
