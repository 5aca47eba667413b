/*
 * Attributes of netCDF and of the CF conventions that say what stored values mean: _FillValue,
 * missing_value and valid_range (or valid_min and valid_max) declare missing values; scale_factor
 * and add_offset turn the others into numbers; _Unsigned reads signed integers as unsigned ones.
 * They are attributes of the array itself: scalars or arrays of one element, of any numeric type.
 */
#include "hdf5_source.h"
#include "base/half.h"
#include <float.h>
#include <stdio.h>
#include <string.h>

/* The numbers of an attribute; none if it does not exist. */
typedef struct {
    double value[H5_HOLES_MAX];
    int count;
    bool are_floats;
} numbers_t;

static tr_status_t packing_numbers(const h5_array_t *a, const char *name, int most,
                                   numbers_t *out) {
    out->count = 0;
    if (H5Aexists(a->id, name) <= 0) return TR_OK;
    hid_t id = H5Aopen(a->id, name, H5P_DEFAULT), type = H5Aget_type(id), space = H5Aget_space(id);
    const H5T_class_t class = H5Tget_class(type);
    const hssize_t elems = H5Sget_simple_extent_npoints(space);
    const bool good = (class == H5T_FLOAT || class == H5T_INTEGER) && elems <= most &&
                      (elems <= 0 || H5Aread(id, H5T_NATIVE_DOUBLE, out->value) >= 0);
    if (good && elems > 0) out->count = (int)elems;
    out->are_floats = class == H5T_FLOAT;
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(id);
    if (good) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s: expected %s in the attribute '%s', found %s. Correct it, in Python: "
                   "h5py.File('%s', 'r+')['%s'].attrs['%s'] = numpy.float64(VALUE), or delete it.",
                   a->file->path, a->name, most == 1 ? "one number" : "a few numbers", name,
                   class == H5T_STRING ? "text" : "something else", a->file->path, a->name, name);
}

/* "true", as _Unsigned is written. */
static bool packing_is_true(const h5_array_t *a, const char *name) {
    char text[16] = "", *variable = NULL;
    if (H5Aexists(a->id, name) <= 0) return false;
    hid_t id = H5Aopen(a->id, name, H5P_DEFAULT), type = H5Aget_type(id), space = H5Aget_space(id);
    if (H5Sget_simple_extent_npoints(space) == 1 && H5Tis_variable_str(type) > 0) {
        if (H5Aread(id, type, &variable) >= 0 && variable)
            snprintf(text, sizeof text, "%s", variable);
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, &variable);
    } else if (H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(type) == H5T_STRING &&
               H5Tget_size(type) < sizeof text) {
        (void)H5Aread(id, type, text);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(id);
    return strncmp(text, "true", 4) == 0 || strncmp(text, "True", 4) == 0;
}

/* The range of an integer type; false: floats. */
static bool packing_integers(tr_dtype_t dtype, double *out_least, double *out_most) {
    const double values = ldexp(1, (int)(8 * tr_dtype_bytes(dtype)));
    const bool is_signed = dtype == TR_I8 || dtype == TR_I16 || dtype == TR_I32 || dtype == TR_I64;
    *out_least = is_signed ? -values / 2 : 0;
    *out_most = is_signed ? values / 2 - 1 : values - 1;
    return !tr_dtype_is_float(dtype);
}

/* The number as a value of the array has it; false: none has. The attribute may be of the signed
 * type of an array that is read as unsigned, and of another precision than its floats. */
static bool packing_stored(const h5_array_t *a, const h5_packing_t *p, double number, double *out) {
    double least, most;
    *out = a->dtype == TR_F16 ? (double)tr_float_of_f16(tr_f16_of_float((float)number)) : number;
    if (!packing_integers(a->dtype, &least, &most)) return true;
    if (number < 0 && p->wraps) *out += most + 1;
    return *out >= least && *out <= most && *out == floor(*out);
}

static void packing_add_holes(const h5_array_t *a, const numbers_t *numbers, h5_packing_t *p) {
    for (int i = 0; i < numbers->count; i++) {
        double hole;
        if (isnan(numbers->value[i]))
            p->nan_is_hole = tr_dtype_is_float(a->dtype);
        else if (packing_stored(a, p, numbers->value[i], &hole))
            p->hole[p->holes++] = hole;
    }
}

/* A range of floats for packed integers is one of the decoded values, which CF does not allow: it
 * is not used, as in netCDF4 for Python. */
static void packing_set_range(const h5_array_t *a, const numbers_t *numbers, int index,
                              double *limit, h5_packing_t *p) {
    double value, least, most;
    const bool are_integers = packing_integers(a->dtype, &least, &most);
    if (numbers->count <= index || (are_integers && p->scales && numbers->are_floats)) return;
    if (!packing_stored(a, p, numbers->value[index], &value) || isnan(value)) return;
    *limit = value;
    p->has_range = true;
}

static tr_status_t packing_read_range(const h5_array_t *a, h5_packing_t *p) {
    numbers_t range = {0}, least = {0}, most = {0};
    /* Many files hold a text for people here. */
    if (packing_numbers(a, "valid_range", 2, &range) != TR_OK ||
        packing_numbers(a, "valid_min", 1, &least) != TR_OK ||
        packing_numbers(a, "valid_max", 1, &most) != TR_OK)
        tr_error_clear();
    p->least = -INFINITY, p->most = INFINITY;
    if (range.count == 2) {
        packing_set_range(a, &range, 0, &p->least, p);
        packing_set_range(a, &range, 1, &p->most, p);
    } else {
        packing_set_range(a, &least, 0, &p->least, p);
        packing_set_range(a, &most, 0, &p->most, p);
    }
    return TR_OK;
}

tr_status_t tr_h5_packing_read(h5_array_t *a, h5_packing_t *out) {
    static const tr_dtype_t as_unsigned[TR_DTYPE_COUNT] = {
        [TR_I8] = TR_U8, [TR_I16] = TR_U16, [TR_I32] = TR_U32, [TR_I64] = TR_U64};
    h5_packing_t *p = out;
    numbers_t scale, offset, fill, missing;
    double least, most;
    *p = (h5_packing_t){.scale = 1};
    TR_TRY(packing_numbers(a, "scale_factor", 1, &scale));
    TR_TRY(packing_numbers(a, "add_offset", 1, &offset));
    TR_TRY(packing_numbers(a, "_FillValue", 1, &fill));
    TR_TRY(packing_numbers(a, "missing_value", H5_HOLES_MAX - 1, &missing));
    if (scale.count) p->scale = scale.value[0];
    if (offset.count) p->offset = offset.value[0];
    if (!isfinite(p->offset) || !isfinite(p->scale) || p->scale == 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: /%s: the attributes scale_factor = %g and add_offset = %g do not give "
                       "finite values that differ: correct or delete them.",
                       a->file->path, a->name, p->scale, p->offset);
    p->scales = p->scale != 1 || p->offset != 0;
    if (packing_integers(a->dtype, &least, &most) && least < 0 && packing_is_true(a, "_Unsigned")) {
        a->dtype = as_unsigned[a->dtype];
        p->wraps = true;
    }
    packing_add_holes(a, &fill, p);
    packing_add_holes(a, &missing, p);
    TR_TRY(packing_read_range(a, p));
    if (packing_integers(a->dtype, &least, &most) && p->least <= least && p->most >= most)
        p->has_range = false;
    p->has_holes = p->nan_is_hole || p->holes > 0 || p->has_range;
    return TR_OK;
}

/* Floats are compared with the precision of 32 bits, since attributes often have another type. */
bool tr_h5_is_missing(const h5_packing_t *p, tr_dtype_t stored, double value) {
    const bool is_float = tr_dtype_is_float(stored);
    if (isnan(value)) return p->nan_is_hole;
    for (int i = 0; i < p->holes; i++)
        if (value == p->hole[i] || (is_float && (float)value == (float)p->hole[i])) return true;
    if (!p->has_range) return false;
    return is_float ? (float)value < (float)p->least || (float)value > (float)p->most
                    : value < p->least || value > p->most;
}

#define PUT(T, value)                                                                              \
    do {                                                                                           \
        T *to = out;                                                                               \
        for (int64_t i = 0; i < elems; i++) to[i] = (T)(value);                                    \
    } while (0)

static void packing_put(tr_dtype_t as, const double *v, int64_t elems, void *out) {
    switch (as) {
    case TR_U8: PUT(uint8_t, v[i]); break;
    case TR_I8: PUT(int8_t, v[i]); break;
    case TR_U16: PUT(uint16_t, v[i]); break;
    case TR_I16: PUT(int16_t, v[i]); break;
    case TR_I32: PUT(int32_t, v[i]); break;
    case TR_F16: PUT(uint16_t, tr_f16_of_float((float)v[i])); break;
    case TR_F64: PUT(double, v[i]); break;
    default: PUT(float, v[i]); break;
    }
}

/* Whether no value is missing, and all are finite as f32 when decoded: vectors, since that is so nearly everywhere. */
static bool packing_are_plain(const h5_packing_t *p, const double *v, int64_t count) {
    const double largest = ((double)FLT_MAX - fabs(p->offset)) / fabs(p->scale);
    int odd = 0;
    for (int64_t i = 0; i < count; i++) odd |= !(fabs(v[i]) <= largest);
    for (int h = 0; h < p->holes; h++) {
        const float hole = (float)p->hole[h];
        for (int64_t i = 0; i < count; i++) odd |= (float)v[i] == hole;
    }
    for (int64_t i = 0; i < count && p->has_range; i++) odd |= v[i] < p->least || v[i] > p->most;
    return !odd;
}

int64_t tr_h5_unpack(const h5_packing_t *p, tr_dtype_t from, const void *in, int64_t elems,
                     const h5_fill_t *fill, tr_dtype_t as, void *out) {
    enum { AT_ONCE = 1024 };
    const size_t in_bytes = tr_dtype_bytes(from), out_bytes = tr_dtype_bytes(as);
    double v[AT_ONCE];
    int64_t bad = -1;
    for (int64_t first = 0; first < elems; first += AT_ONCE) {
        const int64_t count = min64(AT_ONCE, elems - first);
        tr_convert(from, (const char *)in + (size_t)first * in_bytes, count, TR_F64, v);
        const bool plain = packing_are_plain(p, v, count);
        for (int64_t i = 0; i < count && p->scales && plain; i++)
            v[i] = v[i] * p->scale + p->offset;
        for (int64_t i = 0; i < count && !plain; i++) {
            const bool missing = p->has_holes && tr_h5_is_missing(p, from, v[i]);
            if (!missing)
                v[i] = v[i] * p->scale + p->offset;
            else
                v[i] = fill ? fill->value[(first + i) / fill->run % fill->channels] : NAN;
            if (!missing && bad < 0 && !isfinite((float)v[i])) bad = first + i;
        }
        packing_put(as, v, count, (char *)out + (size_t)first * out_bytes);
    }
    return bad;
}

void tr_h5_fill_round(tr_dtype_t as, int64_t count, double *values) {
    double least, most;
    if (!packing_integers(as, &least, &most)) return;
    for (int64_t i = 0; i < count; i++) values[i] = fmin(fmax(rint(values[i]), least), most);
}

void tr_h5_packing_text(const h5_packing_t *p, tr_str_t *out) {
    if (p->scales)
        tr_str_printf(out, "decoded as stored value * %.9g + %.9g (scale_factor, add_offset)%s",
                      p->scale, p->offset, p->has_holes ? "; " : "");
    if (!p->has_holes) return;
    tr_str_append(out, "missing if stored as");
    for (int i = 0; i < p->holes; i++) tr_str_printf(out, "%s %.9g", i ? "," : "", p->hole[i]);
    if (p->nan_is_hole) tr_str_printf(out, "%s NaN", p->holes ? "," : "");
    if (p->has_range)
        tr_str_printf(out, "%s a value outside %.9g to %.9g", p->holes || p->nan_is_hole ? "," : "",
                      p->least, p->most);
}
