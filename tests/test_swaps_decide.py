"""What is accepted is loaded, and nothing else is: not what was planted, changed, copied, or taken back."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gate_cases import FAILED
from swap_cases import CASE, ENTRY, SOURCE, TASK, accepted, by, loaded, now, verdict_on, verified, workplace

from qrprof.kernels import trust
from qrprof.kernels.loading import load
from qrprof.kernels.swapfile import candidate_file, read, write
from qrprof.planner.gate.records import Domain, Interval, Task, Verdict
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import decide, proposals, store
from qrprof.planner.swaps.decide import Here
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.swaps.records import KeptSwap
from qrprof.profiler.errors import QrprofError

HERE = decide.here()
OTHER = SOURCE.replace("weights", "w")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return workplace(tmp_path, monkeypatch)


def refused(root: Path) -> str:
    (line,) = load(swaps_file(root)).refused
    return line


# --- the states


def test_what_is_accepted_is_loaded_until_it_is_undone(root: Path) -> None:
    kept = verified(root)
    assert (kept.state, loaded(root) if swaps_file(root).exists() else []) == ("verified", [])
    decide.accept(by(root), kept, SOURCE, "the gate passed it")
    assert loaded(root) == [kept.name]
    assert (root / ".qrprof" / candidate_file(Path(), kept.swap.sha256)).read_text() == SOURCE
    decide.leave(by(root), now(root, kept.name), "undone", "taken back")
    assert (loaded(root), trust.trusted(root.resolve())) == ([], frozenset())
    life = now(root, kept.name).changes
    assert [(one.state, one.who, one.why) for one in life] == [
        ("verified", "ada", "the gate: PASS"),
        ("accepted", "ada", "the gate passed it"),
        ("undone", "ada", "taken back"),
    ]
    assert {one.at for one in life} == {"2026-02-01T09:00:00+00:00"}


def test_what_was_undone_can_be_accepted_again(root: Path) -> None:
    kept = accepted(root)
    decide.leave(by(root), kept, "undone", "taken back")
    decide.accept(by(root), now(root, kept.name), SOURCE, "after all")
    assert loaded(root) == [kept.name]


def test_another_candidate_for_the_op_takes_the_place_of_the_first(root: Path) -> None:
    first, second = accepted(root), accepted(root, OTHER)
    assert loaded(root) == [second.name]
    assert (now(root, first.name).state, now(root, second.name).state) == ("retired", "accepted")
    assert second.entry is not None
    assert trust.trusted(root.resolve()) == {second.entry.digest}


def test_finding_the_same_again_changes_nothing(root: Path) -> None:
    kept = verified(root)
    with opened(root) as connection:
        again = store.propose(connection, kept.swap, SOURCE, by(root).change("verified", "again", kept.swap.verdict))
    assert again == kept


@pytest.mark.parametrize("state", ["accepted", "rejected"])
def test_what_a_person_decided_is_not_undone_by_finding_it_again(root: Path, state: str) -> None:
    kept = accepted(root)
    if state == "rejected":
        decide.leave(by(root), kept, "rejected", "not wanted")
    bare = replace(kept.swap, entry=replace(ENTRY, name=kept.name, verdict="", torch="9"))
    with opened(root) as connection:
        store.propose(connection, bare, None, by(root).change("proposed", "found"))
    assert now(root, kept.name).state == state


def test_a_new_verdict_brings_a_rejected_swap_back_as_verified(root: Path) -> None:
    kept = verified(root)
    decide.leave(by(root), kept, "rejected", "not wanted")
    assert verified(root, id="another").state == "verified"
    assert now(root, kept.name).swap.verdict == "another"


# --- what speaks against it


CASES_AGAINST: list[tuple[Callable[[Verdict], Verdict | None], Here, str]] = [
    (lambda found: None, HERE, "there is no verdict"),
    (lambda found: replace(FAILED, id="bad", candidate=found.candidate), HERE, "its verdict bad is FAIL"),
    (lambda found: replace(found, outcome="UNKNOWN"), HERE, "is UNKNOWN"),
    (lambda found: replace(found, candidate="ef" * 32), HERE, "is on another file"),
    (lambda found: replace(found, speedup=Interval(1.0, 1.3, 1.4)), HERE, "no gain outside the noise"),
    (lambda found: replace(found, speedup=None), HERE, "no gain outside the noise"),
    (lambda found: found, replace(HERE, torch="9.9.0"), "here is 9.9.0"),
    (lambda found: found, Here(HERE.torch, lambda device: "Another CPU"), "here is Another CPU"),
]


@pytest.mark.parametrize(("spoil", "there", "said"), CASES_AGAINST)
def test_evidence_that_is_not_enough(
    root: Path, spoil: Callable[[Verdict], Verdict | None], there: Here, said: str
) -> None:
    kept = verified(root)
    verdict = verdict_on(TASK, SOURCE)
    assert decide.objection(kept, verdict, HERE) == ""
    assert said in decide.objection(kept, spoil(verdict), there)


def test_without_a_gpu_a_swap_for_one_is_left_as_it_is() -> None:
    assert decide.elsewhere(replace(ENTRY, device="cuda", torch=""), Here(HERE.torch, lambda device: "")) == ""


# --- the calls that a candidate serves


@pytest.mark.parametrize(
    ("domain", "first"), [(Domain(), (1, 8)), (Domain(least=4), (4, 8)), (Domain(shrink="none"), (8, 8))]
)
def test_a_candidate_serves_the_calls_that_the_gate_asked_for(domain: Domain, first: tuple[int, int]) -> None:
    task: Task = replace(TASK, domain=domain)
    entry = proposals.of_file(task, SOURCE, None).entry
    assert entry is not None
    assert entry.cases == (replace(CASE, shapes=((first, (16, 16)),)),)


# --- what others put there


def test_a_copy_of_the_folder_loads_nothing(root: Path, tmp_path: Path) -> None:
    kept = accepted(root)
    clone = tmp_path / "clone"
    shutil.copytree(root, clone)
    assert "you have not accepted it on this machine" in refused(clone)
    assert loaded(clone) == []
    decide.refresh(by(clone), HERE)
    assert now(clone, kept.name).state == "accepted"
    assert loaded(clone) == []


def test_a_planted_file_of_trust_in_the_folder_is_not_read(root: Path, tmp_path: Path) -> None:
    accepted(root)
    clone = tmp_path / "clone"
    shutil.copytree(root, clone)
    planted = (tmp_path / "config" / "trusted.json").read_text().replace(str(root), str(clone))
    for place in (clone / "trusted.json", clone / ".qrprof" / "trusted.json"):
        place.write_text(planted)
    assert loaded(clone) == []


@pytest.mark.parametrize("linked", [".qrprof", ".qrprof/swaps.json"])
def test_a_link_into_another_project_brings_none_of_its_trust(root: Path, tmp_path: Path, linked: str) -> None:
    accepted(root)
    clone = tmp_path / "clone"
    (clone / linked).parent.mkdir(parents=True)
    (clone / linked).symlink_to(root / linked)
    assert "you have not accepted it" in refused(clone)
    (tmp_path / "same").symlink_to(root)
    assert loaded(tmp_path / "same") == loaded(root) != []


def test_planted_swaps_are_removed_by_the_next_look(root: Path) -> None:
    (root / ".qrprof").mkdir()
    write(swaps_file(root), [ENTRY])
    assert loaded(root) == []
    decide.refresh(by(root), HERE)
    assert read(swaps_file(root)) == ()


@pytest.mark.parametrize(
    "change", [{"op": "_log_softmax"}, {"cases": (replace(CASE, plain=(0, False)),)}, {"torch": ""}, {"device": ""}]
)
def test_an_accepted_source_under_other_terms_is_another_swap(root: Path, change: dict[str, object]) -> None:
    kept = accepted(root)
    assert kept.entry is not None
    write(swaps_file(root), [replace(kept.entry, **change)])  # type: ignore[arg-type]
    assert "you have not accepted it" in refused(root)


@pytest.mark.parametrize("text", ["", "{", '{"schema": 9}', "[]"])
def test_a_damaged_file_of_swaps_is_stock_and_is_mended(root: Path, text: str) -> None:
    kept = accepted(root)
    swaps_file(root).write_text(text)
    assert "the program runs on stock kernels" in refused(root)
    decide.refresh(by(root), HERE)
    assert loaded(root) == [kept.name]


def test_a_file_of_swaps_that_is_a_link_is_refused_and_its_target_kept(root: Path, tmp_path: Path) -> None:
    kept = accepted(root)
    target = tmp_path / "mine.json"
    target.write_text("mine")
    swaps_file(root).unlink()
    swaps_file(root).symlink_to(target)
    with pytest.raises(QrprofError, match=r"swaps\.json is a link; remove it"):
        decide.refresh(by(root), HERE)
    swaps_file(root).unlink()
    decide.refresh(by(root), HERE)
    assert (target.read_text(), loaded(root)) == ("mine", [kept.name])


# --- what goes stale


def changed_file(root: Path, kept: KeptSwap) -> Here:
    candidate_file(swaps_file(root), kept.swap.sha256).write_text("def candidate(*args): return args[0]\n")
    return HERE


def lost_file(root: Path, kept: KeptSwap) -> Here:
    candidate_file(swaps_file(root), kept.swap.sha256).unlink()
    return HERE


def other_torch(root: Path, kept: KeptSwap) -> Here:
    return replace(HERE, torch="9.9.0")


def other_machine(root: Path, kept: KeptSwap) -> Here:
    return Here(HERE.torch, lambda device: "Another CPU")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (changed_file, "has changed since"),
        (lost_file, "can no longer be read"),
        (other_torch, "here is 9.9.0"),
        (other_machine, "here is Another CPU"),
    ],
)
def test_what_is_no_longer_what_was_accepted_goes_stale(
    root: Path, spoil: Callable[[Path, KeptSwap], Here], why: str
) -> None:
    kept = accepted(root)
    (line,) = decide.refresh(by(root), spoil(root, kept))
    assert line.startswith(f"{kept.name} is stale, and stock runs: ")
    assert why in line
    assert (now(root, kept.name).state, loaded(root), read(swaps_file(root))) == ("stale", [], ())
    assert decide.refresh(by(root), HERE) == []
    decide.accept(by(root), now(root, kept.name), SOURCE, "again")
    assert loaded(root) == [kept.name]


def test_a_changed_file_does_not_run_before_anyone_looks(root: Path) -> None:
    kept = accepted(root)
    changed_file(root, kept)
    assert "has changed since it was accepted" in refused(root)


def test_the_library_s_own_swap_goes_stale_with_its_source(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(root) as connection:
        found = proposals.of_library("included", "qr")
        kept = store.propose(connection, found, None, by(root).change("proposed", "found"))
    decide.accept(by(root), kept, None, "against the evidence", "to try it")
    assert set(loaded(root)) == {"qr"}
    monkeypatch.setattr("qrprof.planner.swaps.decide.own_sha256", lambda kind, name: "cd" * 32)
    monkeypatch.setattr("qrprof.planner.swaps.proposals.own_sha256", lambda kind, name: "cd" * 32)
    assert decide.refresh(by(root), HERE) == ["qr is stale, and stock runs: qrprof's own source has changed since"]
    assert proposals.renewed(now(root, "qr").swap).sha256 == "cd" * 32


# --- two at once, and a ledger that lies


def test_a_decision_on_what_has_changed_meanwhile_is_refused(root: Path) -> None:
    kept = verified(root)
    decide.leave(by(root), kept, "rejected", "not wanted")
    with pytest.raises(QrprofError, match="another qrprof has decided on swap"):
        decide.accept(by(root), kept, SOURCE, "the gate passed it")
    assert trust.trusted(root.resolve()) == frozenset()


def test_a_source_that_is_not_what_its_hash_says_is_not_shown(root: Path) -> None:
    kept = verified(root)
    with opened(root) as connection:
        connection.execute("UPDATE sources SET text = 'def candidate(*args): evil()'")
        with pytest.raises(QrprofError, match="does not hold the source"):
            store.source_of(connection, kept.swap.sha256)


@pytest.mark.parametrize("change", [{"sha256": "ef" * 32}, {"op": "_log_softmax"}, {"name": "qr"}, {"kind": "adapter"}])
def test_an_entry_that_is_not_what_was_shown_is_not_accepted(root: Path, change: dict[str, object]) -> None:
    kept = verified(root)
    assert kept.entry is not None
    planted = replace(kept.swap, entry=replace(kept.entry, **change))  # type: ignore[arg-type]
    with opened(root) as connection:
        connection.execute("UPDATE swaps SET record = ?", (store.written(planted),))
    with pytest.raises(QrprofError, match="the ledger contradicts itself"):
        decide.accept(by(root), now(root, kept.name), SOURCE, "the gate passed it")
    assert trust.trusted(root.resolve()) == frozenset()
