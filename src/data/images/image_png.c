/* PNG files, with libpng. */
#include "image.h"

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

#else
tr_status_t tr_png_read(FILE *file, const char *path, bool probe, tr_image_t *out) {
    return tr_image_fail_absent(path, "PNG", "libpng");
}
#endif
