"""Filling a disk."""


def fill(path):
    """Adds to a file until not even one more byte is to be had."""
    with open(path, "ab", buffering=0) as f:
        size = 1 << 20
        while size >= 1:
            try:
                if f.write(b"f" * size) < size:
                    size //= 2
            except OSError:
                size //= 2
