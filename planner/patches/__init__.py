"""Changes of the user's own files, as suggestions: found by what a ranking says, shown as a diff, applied, undone."""

from qrprof.planner.patches.find import find as find
from qrprof.planner.patches.patch import Patch as Patch
from qrprof.planner.patches.patch import apply as apply
from qrprof.planner.patches.patch import standing as standing
from qrprof.planner.patches.patch import text as text
from qrprof.planner.patches.patch import undo as undo

__all__ = ["Patch", "apply", "find", "standing", "text", "undo"]
