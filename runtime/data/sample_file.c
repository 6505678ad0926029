#include "runtime/data/sample_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/data/formats/csv.h"
#include "runtime/data/formats/npy.h"

enum kind { PICTURE, ARRAY, LINES };

enum { PIECE = 1 << 16, LABELS_MOST = 4096 };

struct dp_sample_file {
    struct dp_sample_file_form form;
    struct dp_sample_file_info info;
    enum kind kind;
    char *bytes; /* owned */
    size_t count;
    struct dp_npy npy;            /* of an array */
    struct dp_sample_shape shape; /* of its rows */
    struct dp_csv_form lines;
    size_t *starts; /* owned [info.rows]: where lines begin */
    size_t first;   /* number of the first of them in the file, from 1 */
};

/* ---- reading ---- */

/* All that a descriptor gives, with a NUL after it. */
static dp_status read_all(int fd, struct dp_sample_file *f, struct dp_problem *problem)
{
    size_t room = 0;
    ssize_t got;

    do {
        if (room - f->count < 2) {
            char *larger = dp_zalloc(1, room = room == 0 ? PIECE : 2 * room);
            if (larger == NULL) {
                return dp_problem_refuse(problem, DP_ERR_NOMEM, "more than %zu MB", room >> 20);
            }
            if (f->count > 0) {
                memcpy(larger, f->bytes, f->count);
            }
            dp_free(f->bytes);
            f->bytes = larger;
        }
        got = read(fd, f->bytes + f->count, room - f->count - 1);
        f->count += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    return got == 0
               ? DP_OK
               : dp_problem_refuse(problem, DP_ERR_DATA, "cannot be read: %s", strerror(errno));
}

static dp_status read_file(const char *path, struct dp_sample_file *f, struct dp_problem *problem)
{
    struct stat info;
    dp_status status;
    int fd;

    if (strcmp(path, "-") == 0) {
        return read_all(STDIN_FILENO, f, problem);
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer does not wait */
    if (fd < 0) {
        return dp_problem_refuse(problem, DP_ERR_NOINPUT, "%s", strerror(errno));
    }
    status = fstat(fd, &info) == 0 && S_ISREG(info.st_mode)
                 ? read_all(fd, f, problem)
                 : dp_problem_refuse(problem, DP_ERR_DATA, "is no regular file");
    (void)close(fd);
    return status;
}

/* ---- arrays ---- */

static bool is_one(const struct dp_npy *npy, const struct dp_sample_shape *input)
{
    const size_t want[] = {(size_t)input->height, (size_t)input->width, (size_t)input->channels};
    const int dims = input->height > 0 ? 3 : 1;

    if (input->height == 0) {
        return npy->dims == 1 && npy->dim[0] == input->count;
    }
    for (int i = 0; i < dims && i < npy->dims; i++) {
        if (npy->dim[i] != want[i]) {
            return false;
        }
    }
    return npy->dims == 3 || (npy->dims == 2 && input->channels == 1);
}

static bool is_large(const struct dp_npy *npy)
{
    for (int i = 0; i < npy->dims; i++) {
        if (npy->dim[i] > INT_MAX) {
            return true;
        }
    }
    return false;
}

static dp_status open_array(struct dp_sample_file *f, struct dp_problem *problem)
{
    struct dp_npy *npy = &f->npy;
    const struct dp_sample_shape *input = &f->form.input;
    size_t axes[3] = {0, 0, 1};
    char type[16];
    int at;

    DP_TRY(dp_npy_parse((const uint8_t *)f->bytes, f->count < DP_NPY_HEAD ? f->count : DP_NPY_HEAD,
                        f->count, npy, problem));
    if (npy->kind == DP_NPY_SIGNED || (npy->kind == DP_NPY_UNSIGNED && npy->width != 1)) {
        dp_npy_type_text(npy, type);
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "holds %s: save it with astype('float32'), or 'uint8' for 0 to "
                                 "255",
                                 type);
    }
    f->info = (struct dp_sample_file_info){.rows = is_one(npy, input) ? 1 : npy->rows,
                                           .has_rows = !is_one(npy, input),
                                           .element = npy->kind == DP_NPY_FLOAT ? DP_ELEMENT_FLOAT
                                                                                : DP_ELEMENT_BYTE};
    at = f->info.has_rows ? 1 : 0;
    if (npy->dims - at > 3 || npy->dims - at < 1 || is_large(npy)) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "has %d dimension%s: [rows, features] or [rows, height, width, "
                                 "channels] are taken",
                                 npy->dims, npy->dims == 1 ? "" : "s");
    }
    for (int i = at; i < npy->dims; i++) {
        axes[i - at] = npy->dim[i];
    }
    f->shape =
        (struct dp_sample_shape){.count = f->info.has_rows ? npy->count : npy->rows * npy->count,
                                 .element = f->info.element};
    if (npy->dims - at > 1) {
        f->shape.height = (int)axes[0];
        f->shape.width = (int)axes[1];
        f->shape.channels = (int)axes[2];
    }
    return DP_OK;
}

static void take_array(const struct dp_sample_file *f, size_t row, struct dp_raw *raw)
{
    const size_t bytes = f->shape.count * f->npy.width;

    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = f->bytes + f->npy.begin + row * bytes,
                           .bytes = bytes,
                           .shape = f->shape};
}

/* ---- lines ---- */

static dp_status count_labels(struct dp_sample_file *f, struct dp_problem *problem)
{
    const size_t wanted = f->form.input.count, fields = f->lines.fields;
    const size_t labels = fields > wanted ? fields - wanted : 0;

    if (fields < wanted || (labels > 1 && labels != f->form.outputs) || labels > LABELS_MOST) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "has %zu field%s a line: the model takes %zu numbers, with or "
                                 "without a label",
                                 fields, fields == 1 ? "" : "s", wanted);
    }
    f->lines.labels = labels;
    return DP_OK;
}

static size_t line_end(const struct dp_sample_file *f, size_t at)
{
    const char *end = memchr(f->bytes + at, '\n', f->count - at);

    return end == NULL ? f->count : (size_t)(end - f->bytes) + 1;
}

/* Characters of the line at `at`, without its end. */
static size_t line_length(const struct dp_sample_file *f, size_t at)
{
    const size_t end = line_end(f, at);

    return end - at - (end > at && f->bytes[end - 1] == '\n' ? 1 : 0);
}

static dp_status open_lines(struct dp_sample_file *f, struct dp_problem *problem)
{
    const bool marked = f->count >= 3 && memcmp(f->bytes, "\xef\xbb\xbf", 3) == 0;
    size_t at = marked ? 3 : 0, lines = 0;
    const size_t first = line_length(f, at);

    f->info = (struct dp_sample_file_info){.element = DP_ELEMENT_FLOAT, .has_rows = true};
    f->lines = dp_csv_form_of(f->bytes + at, first, f->form.label_last);
    DP_TRY(count_labels(f, problem));
    f->first = 1;
    if (dp_csv_is_header(&f->lines, f->bytes + at, first)) {
        at = line_end(f, at);
        f->first = 2;
    }
    for (size_t i = at; i < f->count; i = line_end(f, i)) {
        lines++;
    }
    if (lines == 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "has no rows, only a header");
    }
    f->starts = dp_zalloc(lines, sizeof(*f->starts));
    if (f->starts == NULL) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "%zu lines", lines);
    }
    f->info.rows = lines;
    for (size_t i = 0; at < f->count; at = line_end(f, at)) {
        f->starts[i++] = at;
    }
    return DP_OK;
}

static dp_status read_line(const struct dp_sample_file *f, size_t row, float *out,
                           struct dp_problem *problem)
{
    const size_t at = f->starts[row];
    double labels[LABELS_MOST];
    struct dp_problem why;
    dp_status status;

    status = dp_csv_read(&f->lines, f->bytes + at, line_length(f, at), out, labels, &why);
    return status == DP_OK
               ? DP_OK
               : dp_problem_refuse(problem, status, "line %zu: %s", f->first + row, why.text);
}

/* ---- all kinds ---- */

static bool begins_with(const struct dp_sample_file *f, const char *text, size_t bytes)
{
    return f->count >= bytes && memcmp(f->bytes, text, bytes) == 0;
}

/* Whether the first bytes can be of a text. */
static bool is_text(const struct dp_sample_file *f)
{
    for (size_t i = 0; i < f->count && i < 512; i++) {
        const unsigned char c = (unsigned char)f->bytes[i];
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

enum { SHAPE_BYTES = 48 };

/* " (28 x 28 x 1)"; nothing for numbers that are no image. */
static const char *shape_text(const struct dp_sample_shape *s, char text[SHAPE_BYTES])
{
    text[0] = '\0';
    if (s->height > 0) {
        (void)snprintf(text, SHAPE_BYTES, " (%d x %d x %d)", s->height, s->width, s->channels);
    }
    return text;
}

/* Whether rows of this shape can be given to the model. */
static dp_status check_shape(const struct dp_sample_file *f, struct dp_problem *problem)
{
    const struct dp_sample_shape *in = &f->form.input, *have = &f->shape;
    char has[SHAPE_BYTES], takes[SHAPE_BYTES];
    struct dp_problem ignored;

    if (dp_decode_check(have, in, f->form.resize, &ignored) == DP_OK) {
        return DP_OK;
    }
    if (have->count == 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "is a picture: the model takes %zu numbers that are none",
                                 in->count);
    }
    return dp_problem_refuse(problem, DP_ERR_DATA,
                             "has samples of %zu numbers%s: the model takes %zu%s", have->count,
                             shape_text(have, has), in->count, shape_text(in, takes));
}

static dp_status open_kind(struct dp_sample_file *f, struct dp_problem *problem)
{
    if (f->count == 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is empty");
    }
    if (begins_with(f, "\x89PNG", 4) || begins_with(f, "\xff\xd8\xff", 3)) {
        f->kind = PICTURE;
        f->info = (struct dp_sample_file_info){.rows = 1, .element = DP_ELEMENT_BYTE};
        return check_shape(f, problem); /* a shape of zeros: any size */
    }
    if (begins_with(f, "\x93NUMPY", 6)) {
        f->kind = ARRAY;
        DP_TRY(open_array(f, problem));
        return check_shape(f, problem);
    }
    f->kind = LINES;
    return is_text(f) ? open_lines(f, problem)
                      : dp_problem_refuse(problem, DP_ERR_DATA,
                                          "is no PNG or JPEG, no array of numpy and no lines of "
                                          "numbers");
}

dp_status dp_sample_file_open(const char *path, const struct dp_sample_file_form *form,
                              struct dp_sample_file **out, struct dp_problem *problem)
{
    struct dp_sample_file *f = dp_zalloc(1, sizeof(*f));
    dp_status status;

    if (f == NULL) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "cannot be read: out of memory");
    }
    f->form = *form;
    status = read_file(path, f, problem);
    status = status == DP_OK ? open_kind(f, problem) : status;
    if (status != DP_OK) {
        dp_sample_file_close(f);
        return status;
    }
    *out = f;
    return DP_OK;
}

void dp_sample_file_close(struct dp_sample_file *f)
{
    if (f != NULL) {
        dp_free(f->starts);
        dp_free(f->bytes);
        dp_free(f);
    }
}

const struct dp_sample_file_info *dp_sample_file_info(const struct dp_sample_file *f)
{
    return &f->info;
}

dp_status dp_sample_file_read(const struct dp_sample_file *f, struct dp_decoder *decoder,
                              size_t row, void *out, struct dp_problem *problem)
{
    struct dp_sample_shape want = f->form.input;
    struct dp_raw raw = {.kind = DP_RAW_PICTURE, .data = f->bytes, .bytes = f->count};

    want.element = f->info.element;
    if (f->kind == LINES) {
        return read_line(f, row, out, problem);
    }
    if (f->kind == ARRAY) {
        take_array(f, row, &raw);
    }
    if (f->info.element == DP_ELEMENT_FLOAT) {
        for (size_t i = 0; i < f->shape.count; i++) {
            ((float *)out)[i] = (float)dp_npy_number(&f->npy, raw.data, i);
        }
        return DP_OK;
    }
    return dp_decode(decoder, &raw, &want, f->form.resize, out, problem);
}
