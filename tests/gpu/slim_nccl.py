#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""slim_nccl.py LIBRARY OUTPUT ARCHITECTURE: a libnccl.so.2 for one kind of GPU.

The GPU code of all other architectures (90 is Hopper) is overwritten with zeros where
it is, so that no offset changes and the library loads as before; what is left is
small once it is compressed.  tests/gpu/run --fetch uses it.
"""
import struct
import sys

if sys.argv[1:] == ["--help"]:
    sys.exit(print(__doc__))

MAGIC = 0xBA55ED50  # of a fatbin: magic, version, bytes of the head, bytes of the entries
SECTIONS = (".nv_fatbin", "__nv_relfatbin")


def find_sections(library):
    """Where the sections of GPU code begin and end."""
    table = struct.unpack_from("<Q", library, 0x28)[0]
    entry_bytes, count, names = struct.unpack_from("<HHH", library, 0x3A)
    entries = [
        struct.unpack_from("<IIQQQQ", library, table + i * entry_bytes)
        for i in range(count)
    ]
    texts = entries[names][4]
    for entry in entries:
        end = library.index(0, texts + entry[0])
        if library[texts + entry[0]:end].decode() in SECTIONS:
            yield entry[4], entry[4] + entry[5]


def clear(library, at, end, keep):
    """Clear the entries that are not for `keep`; how many bytes stay."""
    kept = 0
    while at + 16 <= end:
        magic, _, head, size = struct.unpack_from("<IHHQ", library, at)
        if magic != MAGIC:
            at += 8
            continue
        entry = at + head
        at = entry + size
        while entry < at:
            entry_head, entry_size = struct.unpack_from("<IQ", library, entry + 4)
            architecture = struct.unpack_from("<I", library, entry + 28)[0]
            code = entry + entry_head
            entry = code + entry_size
            if architecture == keep:
                kept += entry_size
            else:
                library[code:entry] = bytes(entry_size)
    return kept


def main(source, target, architecture):
    with open(source, "rb") as file:
        library = bytearray(file.read())
    kept = sum(
        clear(library, begin, end, int(architecture))
        for begin, end in find_sections(library)
    )
    if kept == 0:
        sys.exit(f"{source} has no code for architecture {architecture}")
    with open(target, "wb") as file:
        file.write(library)
    print(f"{kept >> 20} MiB of GPU code for architecture {architecture} kept")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
