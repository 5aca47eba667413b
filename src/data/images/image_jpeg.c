/* JPEG files, with libjpeg. */
#include "image.h"

#ifdef TR_HAVE_JPEG
#include <setjmp.h>

#include <jpeglib.h>

#include <jerror.h>

typedef struct {
    struct jpeg_error_mgr base; /* first, so that a pointer to it is a pointer to this struct */
    jmp_buf jump;
    const char *path;
    char reason[JMSG_LENGTH_MAX];
} reader_t;

static void jpeg_give_up(j_common_ptr info) {
    reader_t *reader = (reader_t *)info->err;
    reader->base.format_message(info, reader->reason);
    longjmp(reader->jump, 1);
}

/* The library fills missing parts with grey and only warns. Other warnings are harmless. */
static void jpeg_note_message(j_common_ptr info, int level) {
    const int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) jpeg_give_up(info);
}

/* Errors of the library return to setjmp. */
static tr_status_t jpeg_read_guarded(reader_t *reader, FILE *file,
                                     struct jpeg_decompress_struct *jpeg, bool probe,
                                     tr_image_t *out) {
    if (setjmp(reader->jump)) return tr_image_fail(reader->path, reader->reason);
    jpeg_create_decompress(jpeg);
    jpeg_stdio_src(jpeg, file);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->num_components != 1 && jpeg->num_components != 3)
        return tr_image_fail(reader->path, "its colours are CMYK, not RGB; convert it: mogrify "
                                           "-colorspace sRGB FILE");
    TR_TRY(tr_image_make(reader->path, jpeg->image_height, jpeg->image_width, jpeg->num_components,
                         probe, out));
    if (probe) return TR_OK;
    const size_t stride = (size_t)out->width * (size_t)out->channels;
    jpeg->out_color_space = out->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = out->pixels + jpeg->output_scanline * stride;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
    return TR_OK;
}

tr_status_t tr_jpeg_read(FILE *file, const char *path, bool probe, tr_image_t *out) {
    reader_t reader = {.path = path};
    struct jpeg_decompress_struct jpeg = {.err = jpeg_std_error(&reader.base)};
    reader.base.error_exit = jpeg_give_up;
    reader.base.emit_message = jpeg_note_message;
    const tr_status_t status = jpeg_read_guarded(&reader, file, &jpeg, probe, out);
    jpeg_destroy_decompress(&jpeg);
    return status;
}

#else
tr_status_t tr_jpeg_read(FILE *file, const char *path, bool probe, tr_image_t *out) {
    return tr_image_fail_absent(path, "JPEG", "libjpeg");
}
#endif
