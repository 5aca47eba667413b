/* Decodes stored chunks: checksum, gzip, shuffle. */
#include "h5.h"
#include <string.h>
#include <zlib.h>

#define FLETCHER_WORDS (1 << 17) /* whose sums cannot overflow 64 bits */
#define FLETCHER_BLOCK                                                                             \
    64 /* words whose weighted sum fits in 32 bits, so that the inner loop vectorises */

/* Fletcher's checksum over 16-bit words in HDF5's byte order (high byte first). For words w_0 ..
 * w_{n-1}, the sums are s1 = sum w_i and s2 = sum (n - i) w_i, modulo 65535, where a nonzero sum is
 * represented by 1 .. 65535. */
uint32_t tr_fletcher32(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint64_t s1 = 0, s2 = 0;
    bool any = false;
    for (size_t left = bytes / 2; left > 0;) {
        size_t n = left < FLETCHER_WORDS ? left : FLETCHER_WORDS;
        for (size_t i = 0; i < n; i += FLETCHER_BLOCK) {
            uint32_t m = n - i < FLETCHER_BLOCK ? (uint32_t)(n - i) : FLETCHER_BLOCK;
            uint32_t high = 0, low = 0, high_weighted = 0, low_weighted = 0;
            for (uint32_t j = 0; j < m; j++, p += 2) {
                high += p[0], low += p[1];
                high_weighted += p[0] * (m - j), low_weighted += p[1] * (m - j);
            }
            s2 += m * s1 + ((uint64_t)high_weighted << 8) + low_weighted;
            s1 += ((uint64_t)high << 8) + low;
        }
        any |= s1 > 0;
        s1 %= 65535;
        s2 %= 65535;
        left -= n;
    }
    if (bytes % 2) {
        any |= *p > 0;
        s1 += (uint64_t)*p << 8;
        s2 += s1;
    }
    return any ? (uint32_t)((s2 + 65534) % 65535 + 1) << 16 | (uint32_t)((s1 + 65534) % 65535 + 1)
               : 0;
}

/* LZF, h5py's fast compression. A control byte c < 32 is followed by c + 1 literal bytes. Otherwise
 * it is a reference to earlier output: its upper three bits (plus the next byte if they are 7) are
 * the length minus two, and its lower five bits with the next byte are the distance minus one.
 * Returns the number of decoded bytes; 0: invalid. */
static size_t decode_lzf(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t room) {
    const uint8_t *end = in + in_bytes;
    size_t made = 0;
    while (in < end) {
        size_t control = *in++, count = control + 1;
        if (control < 32) {
            if (count > (size_t)(end - in) || count > room - made) return 0;
            memcpy(out + made, in, count);
            in += count;
            made += count;
            continue;
        }
        count = (control >> 5) + 2;
        if (count == 9 && in < end) count += *in++;
        if (in == end) return 0;
        size_t back = ((control & 31) << 8) + *in++ + 1;
        if (back > made || count > room - made) return 0;
        /* may overlap the output */
        for (; count > 0; count--, made++) out[made] = out[made - back];
    }
    return made;
}

static bool decode_checksum_good(const char *data, size_t bytes) {
    const uint8_t *s = (const uint8_t *)data + bytes;
    uint32_t stored =
                 (uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24,
             sum = tr_fletcher32(data, bytes);
    /* Files of HDF5 before 1.6.3 have the bytes of each half swapped. */
    return stored == sum || stored == ((sum & 0x00ff00ffu) << 8 | (sum & 0xff00ff00u) >> 8);
}

static bool decode_filter(const h5_array_t *a, H5Z_filter_t filter, char **data, char **other,
                          size_t *bytes, size_t room) {
    char *swap = *data;
    if (filter == H5Z_FILTER_FLETCHER32) {
        if (*bytes < 4) return false;
        *bytes -= 4;
        return decode_checksum_good(*data, *bytes);
    }
    if (filter == H5_FILTER_LZF) {
        *bytes = decode_lzf((const uint8_t *)*data, *bytes, (uint8_t *)*other, room);
        if (!*bytes) return false;
    } else if (filter == H5Z_FILTER_SHUFFLE) {
        const size_t width = tr_dtype_bytes(a->dtype), elems = *bytes / width;
        for (size_t j = 0; j < width; j++)
            for (size_t i = 0; i < elems; i++) (*other)[i * width + j] = (*data)[j * elems + i];
        memcpy(*other + elems * width, *data + elems * width, *bytes % width);
    } else {
        uLongf got = (uLongf)room;
        if (uncompress((Bytef *)*other, &got, (const Bytef *)*data, (uLong)*bytes) != Z_OK)
            return false;
        *bytes = got;
    }
    *data = *other;
    *other = swap;
    return true;
}

tr_status_t tr_h5_decode(const h5_array_t *a, int64_t chunk, char *raw, char *spare,
                         const char **out) {
    size_t bytes = a->table[chunk].bytes, room = (size_t)a->chunk_bytes + 4;
    bool good = true;
    for (int f = a->filters - 1; f >= 0 && good; f--)
        if (!(a->table[chunk].mask >> f & 1))
            good = decode_filter(a, a->filter[f], &raw, &spare, &bytes, room);
    *out = raw;
    if (good && bytes == (size_t)a->chunk_bytes) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s: chunk %lld (samples from %lld) is damaged: %s. Restore the file.",
                   a->file->path, a->name, (long long)chunk,
                   (long long)(chunk / a->chunks_per_row * a->chunk_rows),
                   good ? "it has the wrong size" : "its checksum or compression is wrong");
}
