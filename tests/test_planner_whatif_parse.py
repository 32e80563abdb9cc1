"""How the scenarios of what-ifs are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.whatif import (
    FACTOR,
    ROOFLINE,
    TABLE,
    TIME,
    Spec,
    parse_setting,
    parse_spec,
)
from qrprof.planner.whatif_keys import head, spelled
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4x", (FACTOR, 0.25)),
        ("0.5x", (FACTOR, 2.0)),
        ("1,000x", (FACTOR, 0.001)),
        ("0", (FACTOR, 0.0)),
        ("120us", (TIME, 120e3)),
        ("1.5 ms", (TIME, 1.5e6)),
        ("800ns", (TIME, 800.0)),
        ("2 µs", (TIME, 2000.0)),
        ("2 \u03bcs", (TIME, 2000.0)),
        (".5s", (TIME, 0.5e9)),
        ("0us", (TIME, 0.0)),
    ],
)
def test_specs(text: str, expected: tuple[str, float]) -> None:
    spec = parse_spec(text)
    assert (spec.kind, spec.value) == pytest.approx(expected)
    assert spec.text == text


@pytest.mark.parametrize("text", [TABLE, ROOFLINE])
def test_specs_that_are_looked_up(text: str) -> None:
    assert parse_spec(text).kind == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "4",
        "4X",
        "-4x",
        "nanx",
        "infx",
        "1e3x",
        "4xx",
        "us",
        "-1us",
        "1,5ms",
        "12 parsecs",
        "١us",
        "1us2",
        "0.0",
    ],
)
def test_bad_specs(text: str) -> None:
    with pytest.raises(
        QrprofError, match=r"says no time: give 4x, 0, a time such as 120us, table or roofline"
    ) as found:
        parse_spec(text)
    assert found.value.exit_code is Exit.USAGE


@pytest.mark.parametrize("text", ["", "linalg_qr", "=4x", " = 4x", "linalg_qr=", "linalg_qr= "])
def test_bad_settings(text: str) -> None:
    with pytest.raises(QrprofError, match="is not KEY=SPEC, such as linalg_qr=4x") as found:
        parse_setting(text)
    assert found.value.exit_code is Exit.USAGE


def test_a_kernels_name_may_hold_an_equals_sign() -> None:
    assert parse_setting(" f<a==b>(int) = 2x ") == ("f<a==b>(int)", Spec("2x", FACTOR, 0.5))


@given(st.floats(min_value=1, max_value=1e15))
def test_a_printed_time_is_read_as_what_it_says(ns: float) -> None:
    text = units.time(ns)
    assert units.parse_time(text) == pytest.approx(ns, rel=0.006)
    assert units.time(units.parse_time(text)) == text
    assert parse_spec(text).value == units.parse_time(text)


@given(st.floats(min_value=0.01, max_value=99))
def test_a_printed_speedup_is_read_as_what_it_says(x: float) -> None:
    text = units.ratio(x)
    assert units.ratio(units.parse_ratio(text)) == text
    assert 1 / parse_spec(text).value == pytest.approx(units.parse_ratio(text))


@given(st.text(min_size=1).map(str.strip).filter(bool), st.sampled_from(["4x", "0", "120us", "table"]))
def test_settings_come_apart_as_they_were_put_together(key: str, spec: str) -> None:
    assert parse_setting(f"{key}={spec}") == (key, parse_spec(spec))


def test_shapes_are_spelled_as_keys() -> None:
    assert spelled("[[128,256],[256,512],[]]") == ["128x256", "256x512", ""]
    assert spelled("[[[2,3],[4,5]],[]]") == ["2x3", "4x5", ""]
    assert spelled("[]") == []


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("gemm", "gemm"),
        ("void geqr2_smem<float, 8>(int, float*)", "geqr2_smem"),
        ("void at::native::(anonymous namespace)::softmax<3>(float*)", "softmax"),
        ("void at::native::<unnamed>::pow_tensor<a::b>()", "pow_tensor"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy"),
        ("(weird)", "(weird)"),
    ],
)
def test_own_names_of_kernels(name: str, own: str) -> None:
    assert head(name) == own
