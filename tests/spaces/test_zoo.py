import json

import pytest
import torch

from sartor.core.arch import canonical, from_names
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.costs import published as zoo

COUNTS = {  # parameters and multiply-accumulates at 224 pixels and 1000 classes
    "HC-A": (5260232, 224227936),
    "HC-B": (5176544, 251832064),
    "HC-C": (5521224, 270058400),
    "BI-A": (5165144, 203997472),
    "BI-B": (5631704, 237208512),
    "BI-F": (8169568, 385242368),
    "smallest": (3246072, 136826032),
    "heaviest": (8949984, 520947808),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_to_the_unit(name):
    entry = zoo.entry(name)
    assert (entry["params"], entry["macs"]) == COUNTS[name]


def test_every_network_reads_back_from_its_own_description():
    space = zoo.space()
    for name in zoo.names():
        arch = zoo.arch(name)
        assert canonical(space.choices, arch) == arch
        entry = zoo.entry(name)
        assert from_names(space.choices, entry["choices"]) == arch
        assert entry["architecture"].startswith("ds_r1_k3_s1_e1_c16_nre ir_r1_k")
        assert json.loads(json.dumps(entry)) == entry
    assert len(zoo.names()) == 14
    assert len({zoo.arch(name) for name in zoo.names()}) == 14


def test_extremes_are_the_space_s_own():
    assert zoo.arch("smallest") == zoo.space().smallest
    assert zoo.arch("heaviest") == zoo.space().heaviest


def test_published_string_of_hc_a():
    assert zoo.entry("hc-a")["architecture"] == (
        "ds_r1_k3_s1_e1_c16_nre ir_r1_k5_s2_e3_c24_nre ir_r1_k5_s1_e3_c24_nre_se0.25 ir_r1_k5_s2_e3_c40_nre "
        "ir_r1_k5_s1_e6_c40_nre_se0.25 ir_r1_k5_s2_e6_c80_se0.25 ir_r1_k5_s1_e6_c80_se0.25 "
        "ir_r1_k5_s1_e6_c112_se0.25 ir_r1_k5_s1_e6_c112_se0.25 ir_r1_k5_s2_e6_c192_se0.25 "
        "ir_r1_k5_s1_e6_c192_se0.25 cn_r1_k1_s1_c960"
    )
    assert zoo.entry("HC-A")["published_top1"] == 75.3


def test_another_task_changes_the_counts_and_builds():
    task = Task(10, 64, 1)
    entry = zoo.entry("HC-A", task)
    net = zoo.space().network(zoo.arch("HC-A"), task).eval()
    assert entry["params"] == sum(p.numel() for p in net.parameters()) < COUNTS["HC-A"][0]
    assert entry["macs"] < COUNTS["HC-A"][1] / 10
    with torch.no_grad():
        assert net(torch.zeros(2, 1, 64, 64)).shape == (2, 10)


def test_unknown_names_and_tasks_are_refused():
    with pytest.raises(BadInput, match="HC-A"):
        zoo.entry("HC-Z")
    with pytest.raises(BadInput, match="classes must be 1 to"):
        zoo.entry("HC-A", Task(0, 224))
