"""Quantities of Kubernetes as bytes."""

import pytest

from tftraining_api.model.quantity import MOST, in_bytes


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("1", 1),
        (1000, 1000),
        ("2Gi", 2 * 1024**3),
        ("500M", 500_000_000),
        ("1.5G", 1_500_000_000),
        ("1.5Ki", 1536),
        (".5Ki", 512),
        ("3k", 3000),
        ("1e3", 1000),
        ("1.2E3", 1200),
        ("2E", 2 * 10**18),
        ("128974848000m", 128_974_848),
        ("1m", 1),
        ("9Ei", MOST),
        ("1e99", MOST),
    ],
)
def test_a_quantity_is_a_number_of_bytes(quantity: object, expected: int) -> None:
    assert in_bytes(quantity) == expected


@pytest.mark.parametrize("quantity", [None, "", "0", "0Gi", "-1", "Gi", "2GB", "1 Gi", "1e999999999", "9" * 41, True])
def test_anything_else_is_none(quantity: object) -> None:
    assert in_bytes(quantity) is None
