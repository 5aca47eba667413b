/* Reads samples from JSON and from NumPy's files. */
#include "predict.h"

#include "base/mem.h"
#include "base/npy.h"
#include "base/str.h"
#include "json_request.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OUTPUTS = 1 << 20 }; /* numbers of a reply */

/* Writes number `at` of samples of `dtype`. False: the type cannot hold it. */
static bool number_store(tr_dtype_t dtype, void *x, int64_t at, double value) {
    const bool is_whole = value == floor(value);
    switch (dtype) {
    case TR_F32:
        if (!(fabs(value) <= (double)FLT_MAX)) return false;
        ((float *)x)[at] = (float)value;
        return true;
    case TR_U8:
        if (!is_whole || value < 0 || value > UINT8_MAX) return false;
        ((uint8_t *)x)[at] = (uint8_t)value;
        return true;
    case TR_I32:
        if (!is_whole || value < INT32_MIN || value > INT32_MAX) return false;
        ((int32_t *)x)[at] = (int32_t)value;
        return true;
    default: return false;
    }
}

static tr_status_t samples_alloc(const tr_predictor_info_t *info, int64_t count,
                                 tr_samples_t *out) {
    if (info->dtype != TR_F32 && info->dtype != TR_U8 && info->dtype != TR_I32)
        return TR_FAIL(TR_ERR_DATA, "inputs of type %s cannot be sent to this server",
                       tr_dtype_name(info->dtype));
    if (count < 1) return TR_FAIL(TR_ERR_DATA, "inputs: expected at least one sample, found none");
    if (count > MOST_OUTPUTS / info->outputs)
        return TR_FAIL(TR_ERR_DATA, "inputs: expected at most %lld samples, found %lld",
                       (long long)(MOST_OUTPUTS / info->outputs), (long long)count);
    out->count = count;
    return tr_alloc((size_t)count * (size_t)info->sample_bytes, "samples", &out->x);
}

/* -- JSON -------------------------------------------------------------------------------------- */

static tr_status_t samples_fill(const tr_predictor_info_t *info, const json_t *value, int dim,
                                int64_t *at, void *x) {
    char expected[96];
    if (dim == info->shape.ndim) {
        if (json_is_number(value) &&
            number_store(info->dtype, x, (*at)++, json_number_value(value)))
            return TR_OK;
        tr_snprintf(expected, sizeof expected, "numbers that %s can hold",
                    tr_dtype_name(info->dtype));
        return tr_json_unexpected("inputs", expected, value);
    }
    if (!json_is_array(value) || (int64_t)json_array_size(value) != info->shape.dim[dim]) {
        tr_snprintf(expected, sizeof expected, "lists of %lld in dimension %d of a sample",
                    (long long)info->shape.dim[dim], dim);
        return tr_json_unexpected("inputs", expected, value);
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        TR_TRY(samples_fill(info, json_array_get(value, i), dim + 1, at, x));
    return TR_OK;
}

static tr_status_t samples_read(const tr_predictor_info_t *info, const json_t *inputs,
                                tr_samples_t *out) {
    int depth = 0;
    for (const json_t *v = inputs; json_is_array(v); v = json_array_get(v, 0)) depth++;
    const bool is_one = depth == info->shape.ndim;
    int64_t at = 0;
    if (!json_is_array(inputs) || json_array_size(inputs) == 0)
        return tr_json_unexpected("inputs", "a sample, or a list of samples", inputs);
    TR_TRY(samples_alloc(info, is_one ? 1 : (int64_t)json_array_size(inputs), out));
    for (int64_t i = 0; i < out->count; i++)
        TR_TRY(samples_fill(info, is_one ? inputs : json_array_get(inputs, (size_t)i), 0, &at,
                            out->x));
    return TR_OK;
}

tr_status_t tr_samples_of_json(const tr_predictor_info_t *info, const char *body, size_t bytes,
                               tr_samples_t *out) {
    static const char *const known[] = {"inputs"};
    json_t *request;
    *out = (tr_samples_t){0};
    TR_TRY(tr_json_request(body, bytes, &request));
    tr_status_t status = tr_json_check_fields(request, known, TR_COUNT(known), NULL, 0);
    if (status == TR_OK) status = samples_read(info, json_object_get(request, "inputs"), out);
    json_decref(request);
    return status;
}

/* -- NumPy ------------------------------------------------------------------------------------- */

static const struct {
    const char *descr;
    tr_dtype_t dtype;
} npy_types[] = {
    {"<f4", TR_F32}, {"<f8", TR_F64}, {"|u1", TR_U8}, {"<i4", TR_I32}, {"<i8", TR_I64}};

static double number_load(tr_dtype_t dtype, const char *at) {
    union {
        float f4;
        double f8;
        uint8_t u1;
        int32_t i4;
        int64_t i8;
    } number;
    memcpy(&number, at, tr_dtype_bytes(dtype));
    return dtype == TR_F32   ? number.f4
           : dtype == TR_F64 ? number.f8
           : dtype == TR_U8  ? number.u1
           : dtype == TR_I32 ? number.i4
                             : (double)number.i8;
}

/* *out_first: where the numbers begin. */
static tr_status_t npy_read_header(const char *body, size_t bytes, tr_dtype_t *out_dtype,
                                   tr_shape_t *out_shape, size_t *out_first) {
    tr_npy_t npy;
    if (!tr_npy_parse(body, bytes, &npy))
        return TR_FAIL(TR_ERR_DATA,
                       "expected a .npy file of version 1 to 3 with a header of at "
                       "most %d bytes",
                       TR_NPY_BYTES);
    if (npy.is_fortran)
        return TR_FAIL(TR_ERR_DATA, ".npy: expected C order: send numpy.ascontiguousarray(x)");
    *out_dtype = TR_DTYPE_COUNT;
    for (size_t i = 0; i < TR_COUNT(npy_types); i++)
        if (strcmp(npy.type, npy_types[i].descr) == 0) *out_dtype = npy_types[i].dtype;
    if (*out_dtype == TR_DTYPE_COUNT)
        return TR_FAIL(TR_ERR_DATA,
                       ".npy: expected the type float32, float64, uint8, int32 or int64 in the "
                       "byte order of this machine, found '%s'",
                       npy.type);
    *out_shape = (tr_shape_t){.ndim = npy.ndim};
    *out_first = npy.first;
    for (int d = 0; d < npy.ndim; d++) {
        if (d == TR_MAX_DIMS || npy.dim[d] > INT32_MAX)
            return TR_FAIL(TR_ERR_DATA,
                           ".npy: expected at most %d dimensions of at most %d, found %s",
                           TR_MAX_DIMS, INT32_MAX, npy.shape_text);
        out_shape->dim[d] = npy.dim[d];
    }
    return TR_OK;
}

tr_status_t tr_samples_of_npy(const tr_predictor_info_t *info, const char *body, size_t bytes,
                              tr_samples_t *out) {
    tr_dtype_t dtype = TR_DTYPE_COUNT;
    tr_shape_t shape = {0}, sample;
    size_t first = 0;
    char was[96], is[96];
    *out = (tr_samples_t){0};
    TR_TRY(npy_read_header(body, bytes, &dtype, &shape, &first));
    const bool is_one = shape.ndim == info->shape.ndim;
    sample = shape;
    if (!is_one && shape.ndim > 0) {
        sample.ndim--;
        memmove(sample.dim, sample.dim + 1, sizeof sample.dim - sizeof sample.dim[0]);
    }
    if (!tr_shape_equal(&sample, &info->shape))
        return TR_FAIL(TR_ERR_DATA, ".npy: expected samples of shape %s, found %s",
                       tr_shape_format(&info->shape, was), tr_shape_format(&shape, is));
    TR_TRY(samples_alloc(info, is_one ? 1 : shape.dim[0], out));
    const int64_t count = out->count * tr_shape_elems(&info->shape);
    const size_t size = tr_dtype_bytes(dtype);
    if (bytes - first != (size_t)count * size)
        return TR_FAIL(TR_ERR_DATA,
                       ".npy: expected %lld numbers of %zu bytes each, %lld bytes, found %zu bytes",
                       (long long)count, size, (long long)count * (long long)size, bytes - first);
    for (int64_t i = 0; i < count; i++) {
        const double number = number_load(dtype, body + first + (size_t)i * size);
        if (!number_store(info->dtype, out->x, i, number))
            return TR_FAIL(TR_ERR_DATA, ".npy: expected numbers that %s can hold, found %g",
                           tr_dtype_name(info->dtype), number);
    }
    return TR_OK;
}
