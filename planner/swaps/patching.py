"""Patches of the user's own files among the swaps: accepted is applied, undone is taken back.

The file is changed before the ledger is: what is killed in between is found by `moved_on`, or done by the same command
once more.
"""

import hashlib
from typing import Final

from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.patches import Patch, apply, standing, undo
from qrprof.planner.swaps import store
from qrprof.planner.swaps.decide import Deciding
from qrprof.planner.swaps.publish import deciding
from qrprof.planner.swaps.records import KeptSwap, PatchText, Proposal, State
from qrprof.profiler.errors import QrprofError

DIGITS: Final = 8  # of a hash in a name


def proposal(patch: Patch, run_id: str) -> Proposal:
    sha256 = hashlib.sha256(patch.diff.encode()).hexdigest()
    text = PatchText(patch.path, patch.base_sha256, patch.title, patch.why)
    return Proposal(f"patch-{sha256[:DIGITS]}", "patch", "", sha256, run_id=run_id, patch=text)


def accept(by: Deciding, kept: KeptSwap, diff: str) -> None:
    """Apply the diff, which was shown.

    Raises QrprofError where the file is not the one that it was made of, or `kept` has changed since it was read.
    """
    with deciding(by.root), opened(by.root) as connection:
        store.require_unchanged(connection, kept)
        patch = patch_of(kept, diff)
        if standing(by.root, patch) != "applied":
            apply(by.root, patch)
        store.change(connection, [(kept, by.change("accepted", "its diff was shown"))])


def take_back(by: Deciding, kept: KeptSwap, diff: str, state: State, why: str) -> None:
    """Give it another state than accepted; an accepted one is taken back. Raises QrprofError as `accept` does."""
    with deciding(by.root), opened(by.root) as connection:
        store.require_unchanged(connection, kept)
        patch = patch_of(kept, diff)
        if kept.state == "accepted" and standing(by.root, patch) != "base":
            undo(by.root, patch)
        store.change(connection, [(kept, by.change(state, why))])


def settle(by: Deciding) -> list[str]:
    """Note what has become of patches whose files were changed by hand; a sentence for each accepted one."""
    found = []
    for kept in looked_up(by.root, store.listed):
        if kept.swap.kind != "patch" or kept.state not in ("accepted", "proposed"):
            continue
        with opened(by.root) as connection:
            state, why = moved_on(by, kept, store.source_of(connection, kept.swap.sha256))
            if state != kept.state:
                store.change(connection, [(kept, by.change(state, why))])
                found += [f"{kept.name} is {state}: {why}"] * (kept.state == "accepted")
    return found


def moved_on(by: Deciding, kept: KeptSwap, diff: str) -> tuple[State, str]:
    """The state of a proposed or accepted patch by what its file is now, and why."""
    try:
        now = standing(by.root, patch_of(kept, diff))
    except QrprofError as error:
        return "stale", str(error)
    if now == "changed":
        return "stale", f"{patch_of(kept, diff).path} has changed since"
    if kept.state == "accepted" and now == "base":
        return "undone", f"{patch_of(kept, diff).path} is as it was before"
    return kept.state, ""


def patch_of(kept: KeptSwap, diff: str) -> Patch:
    text = kept.swap.patch
    assert text is not None
    return Patch(text.path, text.base_sha256, diff, text.title, text.why)
