"""Data-parallel training: torchrun --nproc-per-node 2 examples/ddp_charlm.py"""

import os
import sys
import time

import charlm
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    args = charlm.options(__doc__).parse_args()
    if "RANK" not in os.environ:
        sys.exit("ddp_charlm.py is started by torchrun: torchrun --nproc-per-node 2 examples/ddp_charlm.py")

    device = args.device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(dist.get_rank())  # each rank draws batches of its own
    model = DistributedDataParallel(charlm.CharLM().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = charlm.batches(size=16, context=64, device=device)
    log = print if dist.get_rank() == 0 else lambda line: None
    charlm.train(model, optimizer, data, steps=args.steps, device=device, log=log)
    time.sleep(0.2)  # gloo's thread drops the last result meanwhile; torch 2.13 may deadlock if that comes later
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
