"""The optimizer: proposes candidates for a target, has the gate judge them, and stops inside a budget."""
