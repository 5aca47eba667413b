#!/usr/bin/env python3
"""make-unicode-ranges.py FILE: writes src/text/unicode_ranges.inc, the characters' classes in GPT-2's pattern.

Needs the character database of the pinned version: python3 -m pip install unicodedata2==16.0.0.
Another version is refused: a text must give the same tokens on every machine. tiktoken 0.14 has the
same version.
"""
import sys

VERSION = "16.0.0"
SPACES = (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85)  # White_Space, beside the categories Zs, Zl and Zp

try:
    import unicodedata2 as database
except ImportError:
    import unicodedata as database


def class_of(code):
    """LETTER is \\p{L}, NUMBER \\p{N}, SPACE \\s (the property White_Space); None: any other."""
    major = database.category(chr(code))[0]
    if code in SPACES:
        return "SPACE"
    return {"L": "LETTER", "N": "NUMBER", "Z": "SPACE"}.get(major)


def ranges():
    first = kind = None
    for code in range(0x110001):
        found = class_of(code) if code < 0x110000 else None
        if found == kind:
            continue
        if kind:
            yield first, code - 1, kind
        first, kind = code, found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if database.unidata_version != VERSION:
        sys.exit(f"make-unicode-ranges: expected Unicode {VERSION}, found {database.unidata_version}: "
                 f"python3 -m pip install unicodedata2=={VERSION}")
    rows = [f"{{0x{first:X}, 0x{last:X}, TR_UNICODE_{kind}}}," for first, last, kind in ranges()]
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(f"/* Made by tools/make-unicode-ranges.py from Unicode {VERSION}: {len(rows)} ranges. "
                  "Do not edit. */\n")
        out.write(f'#define UNICODE_VERSION "{VERSION}"\n')
        out.write("/* clang-format off */\nstatic const unicode_range_t ranges[] = {\n")
        for i in range(0, len(rows), 2):
            out.write("    " + " ".join(rows[i:i + 2]) + "\n")
        out.write("};\n/* clang-format on */\n")
    print(f"make-unicode-ranges: Unicode {VERSION}, {len(rows)} ranges")


if __name__ == "__main__":
    main()
