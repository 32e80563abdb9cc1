"""SOAP on a small character transformer: each 10th step refreshes the eigenbases, a torch.linalg.qr for each side."""

import sys

import charlm
import torch

try:
    from pytorch_optimizer import SOAP
except ModuleNotFoundError:
    sys.exit("soap_charlm.py needs the package pytorch_optimizer: pip install pytorch_optimizer")


def main() -> None:
    parser = charlm.options(__doc__)
    parser.add_argument("--precondition-frequency", type=int, default=10, help="steps from one refresh to the next")
    args = parser.parse_args()

    torch.manual_seed(0)
    model = charlm.CharLM().to(args.device)
    optimizer = SOAP(model.parameters(), lr=3e-3, precondition_frequency=args.precondition_frequency)
    data = charlm.batches(size=16, context=64, device=args.device)
    charlm.train(model, optimizer, data, steps=args.steps, device=args.device)


if __name__ == "__main__":
    main()
