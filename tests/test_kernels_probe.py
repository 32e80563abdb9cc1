"""A factorisation by the included GPU kernels taken apart into phases."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from qrprof.kernels import probe as probing
from qrprof.kernels.qr import blocked, rows, tiny, whole
from qrprof.profiler.phases import COPY, GEQR2, LARFB, LARFT, UNKNOWN

HERE = torch.device("cpu")
LAUNCHES = [  # ns, as of a matrix of two leaves
    ("qrprof_copy_prepare", 100.0),
    (rows.NAME, 1000.0),
    ("qrprof_larfb_update", 300.0),
    (rows.NAME, 2000.0),
    ("qrprof_larft_gram", 40.0),
    ("qrprof_larft_join", 60.0),
    ("qrprof_copy_finish", 200.0),
]


def stamped(*blocks: tuple[int, int, int]) -> torch.Tensor:
    """Clocks of (batch, cluster = 1) blocks at begin, stored, end."""
    return torch.tensor(blocks).reshape(-1, 1, 3)


# --- geqr2's share of a leaf


def test_the_share_of_one_block() -> None:
    assert probing.geqr2_share(stamped((100, 175, 200))) == 0.75


def test_the_share_of_many_is_of_all_their_time() -> None:
    """A block of three times the time counts three times: (90 + 60) / (100 + 300)."""
    assert probing.geqr2_share(stamped((0, 90, 100), (1000, 1060, 1300))) == 0.375


def test_blocks_of_a_cluster_that_make_no_t_do_not_count() -> None:
    """They stamp no end: it stays 0."""
    stamps = torch.tensor([[[100, 175, 200], [100, 180, 0]], [[100, 125, 200], [90, 190, 0]]])
    assert probing.geqr2_share(stamps) == 0.5


def test_clocks_since_1970_keep_their_nanoseconds() -> None:
    now = 1_790_000_000_000_000_000
    assert probing.geqr2_share(stamped((now + 1, now + 61, now + 101))) == 0.6


# --- launches by phase


def test_a_leaf_is_shared_out_and_every_other_launch_is_of_one_phase() -> None:
    phases, launches = probing.by_phase(LAUNCHES, [0.75, 0.5])
    assert phases == {COPY: 300.0, GEQR2: 1750.0, LARFT: 250.0 + 1000.0 + 100.0, LARFB: 300.0}
    assert launches == 7
    assert sum(phases.values()) == sum(ns for _, ns in LAUNCHES)


def test_the_shares_are_those_of_the_leaves_in_order() -> None:
    phases, _ = probing.by_phase([(rows.NAME, 100.0), (rows.NAME, 1.0)], [1.0, 0.0])
    assert phases == {GEQR2: 100.0, LARFT: 1.0}


def test_no_launches_no_phases() -> None:
    assert probing.by_phase([], []) == ({}, 0)


def test_every_kernel_of_geqrf_has_a_phase() -> None:
    names = {name for name in vars(blocked) if name.startswith("qrprof_")}
    assert {"qrprof_larfb_update", "qrprof_larft_halves", "qrprof_copy_finish"} <= names
    phases, _ = probing.by_phase([(name, 1.0) for name in {*names, tiny.NAME, whole.NAME}], [])
    assert UNKNOWN not in phases


# --- what is not probed


@pytest.mark.parametrize(
    ("op", "shape", "reason"),
    [
        ("linalg_qr", (0, 64, 64), "nothing to factor"),
        ("linalg_qr", (4, 0, 64), "nothing to factor"),
        ("linalg_qr", (4, blocked.MOST_ROWS + 1, 64), f"up to {blocked.MOST_ROWS} rows"),
        ("linalg_qr", (1, blocked.MOST_ROWS, 1 << 30), "cannot index so many entries"),
        ("geqrf", (100, 32, 32), "one launch factors matrices this small"),
        ("linalg_qr", (100, 32, 32), ""),
        ("geqrf", (640, 512, 512), ""),
    ],
)
def test_why_not(monkeypatch: pytest.MonkeyPatch, op: str, shape: tuple[int, int, int], reason: str) -> None:
    monkeypatch.setattr(rows, "usable", lambda device: True)
    found = probing.why_not(op, *shape, HERE)
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_device_without_the_kernels() -> None:
    with pytest.raises(ValueError, match="cannot be compiled for this device"):
        probing.probe(4, 64, 64, HERE)


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", [(640, 512, 512), (60, 1024, 1024), (1, 3072, 3072)], ids=str)
def test_the_phases_sum_to_the_time_of_the_plain_kernels(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    """Of those one after the other: with the rest of an update beside the next leaves they are faster."""
    device = torch.device("cuda", torch.cuda.current_device())
    config = blocked.config_of(device)
    in_turn = replace(config, blocked=tuple(replace(one, ahead=0) for one in config.blocked))
    monkeypatch.setattr(blocked, "config_of", lambda device: in_turn)
    found = probing.probe(*shape, device)
    assert set(found.phases) == {COPY, GEQR2, LARFT, LARFB}
    assert min(found.phases.values()) > 0
    assert found.profiled_ns == pytest.approx(found.plain_ns, rel=0.05)
