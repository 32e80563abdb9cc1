"""SOAP on a 12-layer transformer of width 768, with new eigenbases every step: the benchmark for a GPU."""

import sys

import charlm
import torch

try:
    from pytorch_optimizer import SOAP
except ModuleNotFoundError:
    sys.exit("soap_large.py needs the package pytorch_optimizer: pip install pytorch_optimizer")


def main() -> None:
    parser = charlm.options(__doc__, steps=100)
    parser.add_argument("--precondition-frequency", type=int, default=1, help="steps from one refresh to the next")
    args = parser.parse_args()
    if args.device.type != "cuda":
        print("soap_large.py needs a GPU; on a CPU run examples/soap_charlm.py", file=sys.stderr)
        sys.exit(3)

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = charlm.CharLM(dim=768, heads=12, layers=12, context=512).to(args.device)
    optimizer = SOAP(model.parameters(), lr=3e-3, precondition_frequency=args.precondition_frequency)
    data = charlm.batches(size=16, context=512, device=args.device)
    charlm.train(model, optimizer, data, steps=args.steps, device=args.device)


if __name__ == "__main__":
    main()
