"""Kinds and columns of a trace, named once.

Times are integer nanoseconds from the trace's own zero. A host row has `device == HOST` and the
thread id in `track`; a device row has the device's index and the stream in `track`.
"""

import re
from typing import Final

OP: Final = "op"  # a dispatcher op: aten::mm, autograd::engine::evaluate_function: ...
ANNOTATION: Final = "annotation"  # record_function, ProfilerStep, Optimizer.step#..., our marks
RUNTIME: Final = "runtime"  # CUDA/HIP runtime and driver calls
SYNC: Final = "sync"  # synchronisation records of the device timeline; never summed as work
OVERHEAD: Final = "overhead"  # the profiler's own cost
KERNEL: Final = "kernel"
COPY: Final = "copy"
MEMSET: Final = "memset"

KINDS: Final = (OP, ANNOTATION, RUNTIME, SYNC, OVERHEAD, KERNEL, COPY, MEMSET)
DEVICE_WORK: Final = (KERNEL, COPY, MEMSET)

HOST: Final = -1

COLUMNS: Final = {
    "kind": "category",
    "name": "category",
    "start": "int64",  # ns
    "end": "int64",  # ns
    "device": "int32",  # HOST, or the device's index
    "track": "int64",  # thread id, or stream
    "correlation": "int64",  # joins a launch to its device work; 0: none
    "sequence": "int64",  # autograd's sequence number; -1: none
    "shapes": "category",  # of the inputs, as compact JSON; "": not recorded
    "dtypes": "category",  # of the inputs, comma separated; "": not recorded
    "bytes": "int64",  # moved by a copy or memset; -1: not recorded
    "awaits": "int64",  # of a sync row: the correlation of the call that recorded the awaited event; 0: none is known
    "awaits_stream": "int64",  # the stream that it recorded; -1: none is known
}

# By name: libraries' kernels, one-shot kernels over peer memory (torch's symmetric memory, vLLM), and the host's own
# collectives (gloo and MPI annotate each on the thread that carries it out).
COMMUNICATION: Final = re.compile(
    r"^(?:(?:nccl|rccl|msccl|oneccl|hccl|xccl)(?!:)|gloo:|mpi:)|multimem_|_shot_all_reduce|cross_device_reduce|nvshmem",
    re.IGNORECASE,
)

MARK_PREFIX: Final = "qrprof.step#"  # an annotation at the boundary *before* recorded step N
GAUGE: Final = "qrprof.gauge"  # an annotation around calls whose time without the profiler is known

CAUSES: Final = ("data", "sync", "copy", "alloc", "launch", "host")  # of idle time, first match wins
CAUSE_LABELS: Final = {
    "data": "data loading",
    "sync": "synchronisation",
    "copy": "blocking copy",
    "alloc": "allocation",
    "launch": "launch-bound op",
    "host": "host work",
    "unknown": "unknown",  # the file does not show what the host did
}


def is_communication(name: str) -> bool:
    """Whether device work, or an annotation of the host, of this name moves data between ranks.

    `nccl:all_reduce` does not: so torch annotates the host's enqueueing of a kernel.
    """
    return COMMUNICATION.search(name) is not None
