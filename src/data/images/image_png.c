/* PNG files, with libpng. */
#include "image.h"

void tr_class_colour(int class, uint8_t rgb[3]) {
    rgb[0] = rgb[1] = rgb[2] = 0;
    for (int bit = 7; class > 0; bit--, class >>= 3)
        for (int c = 0; c < 3; c++) rgb[c] |= (uint8_t)((class >> c & 1) << bit);
}

#ifdef TR_HAVE_PNG
#include "base/mem.h"

#include <png.h>
#include <string.h>

typedef struct {
    const char *path;
    char reason[200];
    png_bytep *row; /* owned */
} reader_t;

static void png_note_error(png_structp png, png_const_charp message) {
    reader_t *reader = png_get_error_ptr(png);
    snprintf(reader->reason, sizeof reader->reason, "%s", message);
    png_longjmp(png, 1);
}

static void png_ignore_warning(png_structp png, png_const_charp message) {}

/* Errors of the library return to setjmp. */
static tr_status_t png_read_guarded(reader_t *reader, FILE *file, png_structp png, png_infop info,
                                    bool probe, tr_image_t *out) {
    if (setjmp(png_jmpbuf(png))) return tr_image_fail(reader->path, reader->reason);
    png_init_io(png, file);
    png_read_info(png, info);
    const bool is_colour = png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR;
    TR_TRY(tr_image_make(reader->path, png_get_image_height(png, info),
                         png_get_image_width(png, info), is_colour ? 3 : 1, probe, out));
    out->bits = png_get_bit_depth(png, info);
    if (probe) return TR_OK;
    /* Any format is converted to grey or RGB with 8 bits. */
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const size_t stride = (size_t)out->width * (size_t)out->channels;
    if (png_get_rowbytes(png, info) != stride)
        return tr_image_fail(reader->path, "its rows have an unexpected length");
    TR_TRY(tr_alloc((size_t)out->height * sizeof *reader->row, "rows of an image", &reader->row));
    for (int64_t y = 0; y < out->height; y++) reader->row[y] = out->pixels + (size_t)y * stride;
    png_read_image(png, reader->row);
    png_read_end(png, NULL);
    return TR_OK;
}

tr_status_t tr_png_read(FILE *file, const char *path, bool probe, tr_image_t *out) {
    reader_t reader = {.path = path};
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, png_note_error, png_ignore_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const tr_status_t status = info ? png_read_guarded(&reader, file, png, info, probe, out)
                                    : TR_FAIL(TR_ERR_MEMORY, "not enough memory for libpng");
    png_destroy_read_struct(&png, &info, NULL);
    tr_free(&reader.row);
    return status;
}

/* -- writing ----------------------------------------------------------------------------------- */

static void png_append(png_structp png, png_bytep bytes, size_t count) {
    tr_str_append_bytes(png_get_io_ptr(png), (const char *)bytes, count);
}

static void png_flush_nothing(png_structp png) {}

static void png_set_classes(png_structp png, png_infop info) {
    png_color palette[256];
    for (int class = 0; class < 256; class ++) {
        uint8_t rgb[3];
        tr_class_colour(class, rgb);
        palette[class] = (png_color){rgb[0], rgb[1], rgb[2]};
    }
    png_set_PLTE(png, info, palette, 256);
}

/* Errors of the library return to setjmp. */
static tr_status_t png_write_guarded(const tr_image_t *image, bool are_classes, const char *title,
                                     png_structp png, png_infop info, tr_str_t *out) {
    if (setjmp(png_jmpbuf(png)))
        return TR_FAIL(TR_ERR_INTERNAL, "a PNG file of %lld x %lld pixels cannot be made",
                       (long long)image->height, (long long)image->width);
    png_set_write_fn(png, out, png_append, png_flush_nothing);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 are_classes            ? PNG_COLOR_TYPE_PALETTE
                 : image->channels == 1 ? PNG_COLOR_TYPE_GRAY
                                        : PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (are_classes) png_set_classes(png, info);
    if (title)
        png_set_text(png, info,
                     &(png_text){.compression = PNG_TEXT_COMPRESSION_NONE,
                                 .key = (char *)(uintptr_t) "Title",
                                 .text = (char *)(uintptr_t)title},
                     1);
    png_write_info(png, info);
    for (int64_t y = 0; y < image->height; y++)
        png_write_row(png, image->pixels + y * image->width * image->channels);
    png_write_end(png, info);
    return out->status;
}

bool tr_png_is_here(void) {
    return true;
}

tr_status_t tr_png_write(const tr_image_t *image, bool are_classes, const char *title,
                         tr_str_t *out) {
    reader_t reader = {.path = ""};
    png_structp png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &reader, png_note_error, png_ignore_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const tr_status_t status = info ? png_write_guarded(image, are_classes, title, png, info, out)
                                    : TR_FAIL(TR_ERR_MEMORY, "not enough memory for libpng");
    png_destroy_write_struct(&png, &info);
    return status;
}

#else
bool tr_png_is_here(void) {
    return false;
}

tr_status_t tr_png_write(const tr_image_t *image, bool are_classes, const char *title,
                         tr_str_t *out) {
    return TR_FAIL(TR_ERR_CONFIG, "PNG files cannot be written: this build has no libpng. Install "
                                  "libpng-dev and run make again.");
}

tr_status_t tr_png_read(FILE *file, const char *path, bool probe, tr_image_t *out) {
    return tr_image_fail_absent(path, "PNG", "libpng");
}
#endif
