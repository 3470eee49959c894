"""Exporting is tested with the product's own exporter."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def as_delivered(product_export):
    pass
