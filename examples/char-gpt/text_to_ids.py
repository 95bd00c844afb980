#!/usr/bin/env python3
"""Turns text into token ids for the model of this directory: text_to_ids.py TEXT.txt IDS.npy [COUNT]

TEXT.txt may be - for standard input.  Writes a .npy array (n,) of int64: the first COUNT characters
(default 128, the model's longest input).  A character that the model does not know becomes a space.
Needs Python alone.
"""
import json
import os
import struct
import sys


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vocab.json"), encoding="utf-8") as file:
        vocab = json.load(file)
    with (sys.stdin if sys.argv[1] == "-" else open(sys.argv[1], encoding="utf-8", errors="ignore")) as file:
        text = file.read()
    count = int(sys.argv[3]) if len(sys.argv) == 4 else 128
    ids = [vocab.get(c, vocab[" "]) for c in text[:count]]
    header = "{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % len(ids)
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(sys.argv[2], "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack("<%dq" % len(ids), *ids))


if __name__ == "__main__":
    main()
