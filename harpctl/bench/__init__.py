"""harpctl bench: drives harp-perf between hosts of a lab, over loopback or ssh, and tables the figures."""
