"""Data-parallel training: torchrun --nproc-per-node 2 examples/ddp_charlm.py"""

import os
import sys
import time
from collections.abc import Iterator

import charlm
import torch
import torch.distributed as dist
from block_soap import BlockSOAP
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


def late(data: Iterator[tuple[Tensor, Tensor]], seconds: float) -> Iterator[tuple[Tensor, Tensor]]:
    """The same batches from a slow loader."""
    for batch in data:
        time.sleep(seconds)
        yield batch


def main() -> None:
    parser = charlm.options(__doc__)
    parser.add_argument("--optimizer", choices=("adamw", "soap"), default="adamw", help="soap is that of block_soap.py")
    parser.add_argument(
        "--late", type=float, default=0, metavar="MS", help="the last rank waits so long for each batch"
    )
    args = parser.parse_args()
    if "RANK" not in os.environ:
        sys.exit("ddp_charlm.py is started by torchrun: torchrun --nproc-per-node 2 examples/ddp_charlm.py")

    device = args.device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(rank)  # each rank draws batches of its own
    model = DistributedDataParallel(charlm.CharLM().to(device))
    soap = args.optimizer == "soap"
    optimizer = BlockSOAP(model.parameters()) if soap else torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = charlm.batches(size=16, context=64, device=device)
    if rank == last and args.late:
        data = late(data, args.late / 1e3)
    log = print if rank == 0 else lambda line: None
    charlm.train(model, optimizer, data, steps=args.steps, device=device, log=log)
    time.sleep(0.2)  # gloo's thread drops the last result meanwhile; torch 2.13 may deadlock if that comes later
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
