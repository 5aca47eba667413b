/* Opening image files, and functions shared by the decoders. */
#include "image.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define HOW_TO_SKIP                                                                                \
    "--skip-corrupt (predict and eval: data.skip_corrupt=yes) leaves out such files."
#define PIXELS_MAX ((int64_t)1 << 28) /* a larger size is treated as damage */

tr_status_t tr_image_fail(const char *path, const char *reason) {
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' cannot be decoded: %s. Replace or remove the file; " HOW_TO_SKIP, path,
                   reason);
}

tr_status_t tr_image_fail_absent(const char *path, const char *format, const char *library) {
    return TR_FAIL(TR_ERR_CONFIG,
                   "'%s' is a %s file, and this build has no %s. Install it (%s-dev) and run make "
                   "again.",
                   path, format, library, library);
}

tr_status_t tr_image_make(const char *path, int64_t height, int64_t width, int channels, bool probe,
                          tr_image_t *out) {
    *out = (tr_image_t){height, width, channels, 8, NULL};
    if (height < 1 || width < 1 || height * width > PIXELS_MAX)
        return TR_FAIL(TR_ERR_DATA, "'%s' has %lld x %lld pixels; the limit is %lld in all.", path,
                       (long long)height, (long long)width, (long long)PIXELS_MAX);
    return probe ? TR_OK : tr_alloc((size_t)(height * width * channels), "an image", &out->pixels);
}

bool tr_image_is_named(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot &&
           (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

void tr_image_free(tr_image_t *image) {
    tr_free(&image->pixels);
}

/* What a file is that is no JPEG and no PNG file. */
static const char *image_content(const uint8_t *begin, size_t bytes) {
    static const struct {
        size_t at, bytes;
        const char *magic, *what;
    } formats[] = {{8, 4, "WEBP", "it is a WebP file, by its content; convert it to PNG"},
                   {0, 4, "GIF8", "it is a GIF file, by its content; convert it to PNG"},
                   {0, 2, "BM", "it is a BMP file, by its content; convert it to PNG"},
                   {0, 4, "II*\0", "it is a TIFF file, by its content; convert it to PNG"},
                   {0, 4, "MM\0*", "it is a TIFF file, by its content; convert it to PNG"},
                   {4, 4, "ftyp", "it is a HEIC or AVIF file, by its content; convert it to PNG"},
                   {0, 1, "<", "it is HTML or XML text, by its content; download it again"}};
    for (size_t i = 0; i < TR_COUNT(formats); i++)
        if (bytes >= formats[i].at + formats[i].bytes &&
            memcmp(begin + formats[i].at, formats[i].magic, formats[i].bytes) == 0)
            return formats[i].what;
    return bytes ? "it is neither a JPEG nor a PNG file, by its content" : "it is empty";
}

static tr_status_t image_decode(const char *path, bool probe, tr_image_t *out) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G'}, jpeg[] = {0xff, 0xd8, 0xff};
    uint8_t begin[12] = {0};
    tr_status_t status;
    *out = (tr_image_t){0};
    TR_TRY(tr_check_regular(path, "images are files"));
    FILE *file = fopen(path, "rbe");
    if (!file)
        return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s. " HOW_TO_SKIP, path,
                       strerror(errno));
    const size_t bytes = fread(begin, 1, sizeof begin, file);
    rewind(file);
    if (memcmp(begin, png, sizeof png) == 0)
        status = tr_png_read(file, path, probe, out);
    else if (memcmp(begin, jpeg, sizeof jpeg) == 0)
        status = tr_jpeg_read(file, path, probe, out);
    else
        status = tr_image_fail(path, image_content(begin, bytes));
    fclose(file);
    if (status != TR_OK) tr_image_free(out);
    return status;
}

tr_status_t tr_image_probe(const char *path, tr_image_t *out) {
    return image_decode(path, true, out);
}

tr_status_t tr_image_read(const char *path, int channels, tr_image_t *out) {
    tr_image_t found;
    TR_TRY(image_decode(path, false, &found));
    const int64_t pixels = found.height * found.width;
    *out = found;
    if (channels == 0 || found.channels == channels) return TR_OK;
    const tr_status_t status = tr_image_make(path, found.height, found.width, channels, false, out);
    for (int64_t i = 0; status == TR_OK && i < pixels; i++) {
        const uint8_t *from = found.pixels + found.channels * i;
        if (channels == 1)
            out->pixels[i] =
                (uint8_t)((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
        else
            memset(out->pixels + 3 * i, *from, 3);
    }
    tr_image_free(&found);
    return status;
}
