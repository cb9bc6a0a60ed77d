"""harpctl setup: what the operator asked for, held against the facts, made a plan, applied and proved."""
