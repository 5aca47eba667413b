/* Types of elements in words, and what to do about those that are not numbers. */
#include "h5.h"
#include <stdio.h>
#include <string.h>

/* h5py stores complex numbers as pairs r and i; others as real and imag. */
static bool type_is_complex(hid_t type) {
    if (H5Tget_class(type) != H5T_COMPOUND || H5Tget_nmembers(type) != 2) return false;
    char *first = H5Tget_member_name(type, 0), *second = H5Tget_member_name(type, 1);
    const bool is_complex = first && second && strchr("rR", *first) && strchr("iI", *second) &&
                            H5Tget_member_class(type, 0) == H5T_FLOAT &&
                            H5Tget_member_class(type, 1) == H5T_FLOAT;
    H5free_memory(first);
    H5free_memory(second);
    return is_complex;
}

const char *tr_h5_type_text(hid_t type, char text[32]) {
    H5T_class_t class = H5Tget_class(type);
    int bits = (int)(8 * H5Tget_size(type));
    const char *order = H5Tget_order(type) == H5T_ORDER_BE && bits > 8 ? " big-endian" : "";
    switch (class) {
    case H5T_INTEGER:
        snprintf(text, 32, "%c%d%s", H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i', bits, order);
        break;
    case H5T_FLOAT: snprintf(text, 32, "f%d%s", bits, order); break;
    case H5T_ENUM: snprintf(text, 32, "enum%d", bits); break;
    case H5T_BITFIELD: snprintf(text, 32, "bits%d", bits); break;
    case H5T_STRING: snprintf(text, 32, "strings"); break;
    case H5T_COMPOUND:
        snprintf(text, 32, "%s", type_is_complex(type) ? "complex numbers" : "compound");
        break;
    case H5T_VLEN: snprintf(text, 32, "rows of variable length"); break;
    case H5T_ARRAY: snprintf(text, 32, "arrays"); break;
    case H5T_REFERENCE: snprintf(text, 32, "references"); break;
    default: snprintf(text, 32, "other"); break;
    }
    return text;
}

/* "'a', 'b'": the first members of a compound type. */
static void type_members(hid_t type, char *out, size_t bytes) {
    size_t used = 0;
    for (int i = 0; i < H5Tget_nmembers(type) && i < 4 && used < bytes; i++) {
        char *name = H5Tget_member_name(type, (unsigned)i);
        used += (size_t)snprintf(out + used, bytes - used, "%s'%.20s'", i ? ", " : "",
                                 name ? name : "");
        H5free_memory(name);
    }
}

void tr_h5_type_remedy(hid_t type, const char *name, char out[512]) {
    char members[128] = "";
    switch (H5Tget_class(type)) {
    case H5T_COMPOUND:
        type_members(type, members, sizeof members);
        if (type_is_complex(type))
            snprintf(out, 512,
                     "holds complex numbers: store the real and imaginary parts as two channels, "
                     "in Python: z = f['%.60s'][:]; g['x'] = numpy.stack([z.real, z.imag], -1)",
                     name);
        else
            snprintf(out, 512,
                     "is a table with named columns (a compound type): store the columns of "
                     "numbers as one array, in Python: t = f['%.60s'][:]; g['x'] = "
                     "numpy.stack([t[c] for c in (%s)], 1).astype('float32')",
                     name, members);
        break;
    case H5T_VLEN:
        snprintf(out, 512,
                 "has rows of different lengths (a variable-length type): pad or cut them to one "
                 "length L, in Python: g['x'] = numpy.stack([numpy.pad(r[:L], (0, L - "
                 "len(r[:L]))) for r in f['%.60s'][:]])",
                 name);
        break;
    case H5T_ARRAY:
        snprintf(out, 512,
                 "has arrays as elements: store a plain array, in Python: g['x'] = f['%.60s'][:]",
                 name);
        break;
    case H5T_REFERENCE:
        snprintf(out, 512,
                 "holds references to other data sets (a cell array or structure of MATLAB): store "
                 "the values as one numeric array");
        break;
    case H5T_STRING:
        snprintf(out, 512, "holds text, not an array of numbers with one row per sample");
        break;
    case H5T_INTEGER:
    case H5T_FLOAT:
    case H5T_BITFIELD:
        snprintf(out, 512,
                 "has elements of an unsupported type: expected integers of 8, 16, 32 or 64 bits, "
                 "floats of 16, 32 or 64 bits, or booleans. Convert it, in Python: g['x'] = "
                 "f['%.60s'][:].astype('float32')",
                 name);
        break;
    default: snprintf(out, 512, "is not an array of numbers with one row per sample"); break;
    }
}
