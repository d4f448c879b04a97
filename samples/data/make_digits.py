#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write digits.txt from the digits.csv.gz that scikit-learn ships.

    pip download scikit-learn==1.9.1 --no-deps --dest /tmp/wheel
    unzip -p /tmp/wheel/scikit_learn-*.whl sklearn/datasets/data/digits.csv.gz \
        > /tmp/digits.csv.gz
    ./make_digits.py /tmp/digits.csv.gz > digits.txt

Needs nothing but Python.  The order of the images is kept, nothing is left
out, and the values are the same: only their spelling is shorter.
"""
import csv
import gzip
import sys

if sys.argv[1:] == ["--help"]:
    sys.exit(print(__doc__))

SPELLING = "0123456789abcdefg"  # 0 to 16

HEADER = """\
# Optical Recognition of Handwritten Digits, 1797 images of 8x8 pixels.
# E. Alpaydin, C. Kaynak (1998), UCI Machine Learning Repository,
# https://doi.org/10.24432/C50P49, CC BY 4.0.  Re-spelt by make_digits.py:
# the digit, a space, 64 pixels from the top left, row by row, 0 to 9, a to g
# for 0 (paper) to 16 (ink)."""


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_digits.py digits.csv.gz > digits.txt")
    print(HEADER)
    with gzip.open(sys.argv[1], "rt") as rows:
        for number, row in enumerate(csv.reader(rows), 1):
            values = [int(value) for value in row]
            if len(values) != 65 or not 0 <= values[64] <= 9:
                sys.exit(f"row {number}: not 64 pixels and a digit")
            if not all(0 <= pixel <= 16 for pixel in values[:64]):
                sys.exit(f"row {number}: a pixel is not 0 to 16")
            print(values[64], "".join(SPELLING[p] for p in values[:64]))


main()
