#include "runtime/run/use/predictor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/system/machine.h"
#include "base/system/openmp.h"
#include "models/pass/pass.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/config_load.h"
#include "runtime/run/dataset/class_names.h"
#include "runtime/run/use/saved_run.h"
#include "runtime/trainer/compute/normalize.h"

/* Passes over samples of one kind of element: made when the first of them comes. */
struct feed {
    struct dp_pass *pass;          /* owned; NULL: not made */
    struct dp_normalize normalize; /* owned */
    size_t prepared;               /* rows that the pass is prepared for */
};

struct dp_predictor {
    struct dp_saved_run saved;
    struct dp_config *config;
    struct dp_model *model;
    const struct dp_device *device;
    struct dp_stream *stream;
    struct dp_class_names names;
    void *weights;  /* owned; device memory, in the compute type */
    float *running; /* owned; device memory */
    struct dp_step_params *step_params;
    float *wide;          /* owned; device memory [batch, classes]; NULL: outputs are float32 */
    float *raw;           /* owned [batch, classes] */
    int32_t *labels;      /* owned; zeros: a pass compares with something */
    struct feed feeds[2]; /* by element */
    size_t batch;
    struct dp_predictor_info info;
};

/* ---- opening ---- */

static dp_status make_stream(struct dp_predictor *p)
{
    const enum dp_precision precision = (enum dp_precision)p->config->train.precision;
    struct dp_machine *machine = NULL;
    const int asked = dp_openmp_asked();
    int threads;

    DP_TRY(dp_device_find(p->config->device.name, &p->device));
    DP_TRY(dp_machine_create(&machine));
    threads = dp_machine_threads(machine, 1);
    threads = asked > 0 && asked < threads ? asked : threads;
    dp_machine_destroy(machine);
    DP_TRY(p->device->stream_create(p->device, threads, &p->stream));
    p->stream->tf32 = precision == DP_PRECISION_TF32;
    dp_stream_set_type(p->stream, dp_precision_type(precision));
    return DP_OK;
}

/* Arrays in the host's memory to the device, rounded to the compute type. */
static dp_status place_weights(struct dp_predictor *p, const struct dp_weights *weights)
{
    const struct dp_model *m = p->model;
    const size_t bytes = m->trained * sizeof(float);
    const enum dp_type type = p->stream->type;
    float *wide = NULL;
    dp_status status;

    p->weights = p->device->alloc(DP_MEM_WEIGHTS, m->trained * dp_type_bytes(type));
    p->running = p->device->alloc(DP_MEM_WEIGHTS, m->statistics * sizeof(float));
    p->step_params = p->device->alloc(DP_MEM_OTHER, sizeof(*p->step_params));
    if (p->weights == NULL || p->running == NULL || p->step_params == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB", bytes >> 20);
    }
    DP_TRY(dp_device_write(p->stream, p->running, weights->running, m->statistics * sizeof(float)));
    if (type == DP_TYPE_F32) {
        return dp_device_write(p->stream, p->weights, weights->values, bytes);
    }
    wide = p->device->alloc(DP_MEM_OTHER, bytes);
    if (wide == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB more", bytes >> 20);
    }
    status = dp_device_write(p->stream, wide, weights->values, bytes);
    if (status == DP_OK) {
        status = p->stream->ops->narrow(p->stream, p->weights, wide, m->trained, type);
    }
    if (status == DP_OK) {
        status = p->device->synchronize(p->stream);
    }
    p->device->release(wide);
    return status;
}

static dp_status read_weights(struct dp_predictor *p)
{
    const struct dp_model *m = p->model;
    float *values = dp_zalloc(m->trained, sizeof(float));
    float *running = dp_zalloc(m->statistics + 1, sizeof(float));
    char path[DP_PATH_BYTES];
    int64_t batches = 0;
    struct dp_weights weights = {m->tensors,  m->tensor_count,  values,
                                 m->buffers,  m->buffer_count,  running,
                                 m->counters, m->counter_count, &batches};
    dp_status status = values == NULL || running == NULL
                           ? DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB", m->trained >> 18)
                           : dp_file_join(path, p->saved.checkpoint, "model.safetensors");

    status = status == DP_OK ? dp_weights_load(path, &weights) : status;
    if (status == DP_OK && p->config->train.ema > 0.0) {
        status = dp_file_join(path, p->saved.checkpoint, "optimizer.safetensors");
        status =
            status == DP_OK ? dp_average_load(path, m->tensors, m->tensor_count, values) : status;
    }
    status = status == DP_OK ? place_weights(p, &weights) : status;
    dp_free(running);
    dp_free(values);
    return status;
}

static dp_status make_buffers(struct dp_predictor *p)
{
    const size_t classes = p->model->classes, bytes = p->batch * classes * sizeof(float);

    p->raw = dp_zalloc(1, bytes);
    p->labels = dp_zalloc(p->batch * dp_model_train_words(p->model), sizeof(int32_t));
    if (p->stream->type != DP_TYPE_F32) {
        p->wide = p->device->alloc(DP_MEM_OTHER, bytes);
    }
    return p->raw != NULL && p->labels != NULL &&
                   (p->stream->type == DP_TYPE_F32 || p->wide != NULL)
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "outputs of %zu rows", p->batch);
}

static dp_status take_names(struct dp_predictor *p)
{
    const struct dp_json *array = dp_json_get(p->saved.state, "classes");
    const size_t count = dp_json_length(array);
    const char **names;
    dp_status status;

    if (count == 0 || count != p->info.outputs || p->info.kind == DP_PREDICT_NUMBERS) {
        return DP_OK;
    }
    names = dp_zalloc(count, sizeof(*names));
    if (names == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "names of %zu classes", count);
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = dp_json_text(dp_json_at(array, i));
        names[i] = name == NULL ? "" : name;
    }
    status = dp_class_names_copy(&p->names, names, (int)count);
    dp_free(names);
    p->info.class_names = p->names.at;
    return status;
}

static dp_status describe(struct dp_predictor *p)
{
    const struct dp_shape *input = &p->config->model.input;
    const enum dp_loss_kind loss = p->model->loss;
    const bool image = input->dims == 3, pair = loss == DP_LOSS_SIGMOID && p->model->classes == 1;

    p->info = (struct dp_predictor_info){
        .checkpoint = p->saved.checkpoint,
        .step = p->saved.step,
        .input = {.height = image ? (int)input->dim[0] : 0,
                  .width = image ? (int)input->dim[1] : 0,
                  .channels = image ? (int)input->dim[2] : 0,
                  .count = dp_shape_count(input)},
        .resize = (enum dp_resize)p->config->data.resize,
        .label_last = p->config->data.label == DP_LABEL_LAST,
        .kind = loss == DP_LOSS_SQUARE             ? DP_PREDICT_NUMBERS
                : loss == DP_LOSS_SIGMOID && !pair ? DP_PREDICT_SHARES
                                                   : DP_PREDICT_CLASSES,
        .outputs = pair ? 2 : p->model->classes,
    };
    return take_names(p);
}

static dp_status open_all(struct dp_predictor *p, const struct dp_predictor_options *options)
{
    p->batch = options->batch;
    DP_TRY(dp_saved_run_find(options->run, NULL, &p->saved));
    DP_TRY(dp_saved_run_model(&p->saved, options->device, &p->config, &p->model));
    DP_TRY(make_stream(p));
    DP_TRY(read_weights(p));
    DP_TRY(make_buffers(p));
    return describe(p);
}

dp_status dp_predictor_open(const struct dp_predictor_options *options, struct dp_predictor **out)
{
    struct dp_predictor *p = dp_zalloc(1, sizeof(*p));
    dp_status status;

    if (p == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a predictor");
    }
    status = open_all(p, options);
    if (status != DP_OK) {
        dp_predictor_close(p);
        return status;
    }
    *out = p;
    return DP_OK;
}

void dp_predictor_close(struct dp_predictor *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        dp_pass_destroy(p->feeds[i].pass);
        dp_normalize_fini(&p->feeds[i].normalize);
    }
    if (p->device != NULL) {
        p->device->release(p->wide);
        p->device->release(p->step_params);
        p->device->release(p->running);
        p->device->release(p->weights);
        p->device->stream_destroy(p->stream);
    }
    dp_free(p->labels);
    dp_free(p->raw);
    dp_class_names_release(&p->names);
    dp_model_destroy(p->model);
    dp_config_destroy(p->config);
    dp_saved_run_release(&p->saved);
    dp_free(p);
}

const struct dp_predictor_info *dp_predictor_info(const struct dp_predictor *p)
{
    return &p->info;
}

/* ---- asking ---- */

static dp_status make_feed(struct dp_predictor *p, struct feed *feed, double white)
{
    const struct dp_normalize_config *normalize = &p->config->data.normalize;

    DP_TRY(dp_normalize_init(
        &feed->normalize,
        dp_normalize_channels(&p->model->values[0].shape, &normalize->mean, &normalize->std), white,
        &normalize->mean, &normalize->std));
    DP_TRY(dp_normalize_place(&feed->normalize, p->stream));
    return dp_pass_create(p->model, p->stream, p->batch, false, &feed->pass);
}

/* Outputs of `rows` samples, as the model gives them, into p->raw. */
static dp_status compute(struct dp_predictor *p, struct feed *feed, const void *samples,
                         size_t rows)
{
    const struct dp_model *m = p->model;
    const struct dp_pass_rows part = {
        .images = samples, .labels = p->labels, .count = rows, .evaluated = true};
    const struct dp_pass_call call = {.rows = rows,
                                      .batch_rows = rows,
                                      .labels = p->labels,
                                      .weights = p->weights,
                                      .running = p->running,
                                      .step_params = p->step_params};
    const size_t count = rows * m->classes;
    float sums[DP_EVALUATION_SUMS];
    const void *outputs;

    if (feed->prepared != rows) {
        DP_TRY(dp_pass_prepare(feed->pass, rows, false));
        feed->prepared = rows;
    }
    DP_TRY(dp_pass_load(feed->pass, &part, feed->normalize.scale, feed->normalize.shift,
                        feed->normalize.channels));
    DP_TRY(dp_pass_evaluate(feed->pass, &call, sums));
    outputs = dp_pass_kept(feed->pass, m->nodes[m->node_count - 1].y);
    if (p->wide != NULL) {
        DP_TRY(p->stream->ops->widen(p->stream, p->wide, outputs, count, p->stream->type));
        outputs = p->wide;
    }
    return dp_device_read(p->stream, p->raw, outputs, count * sizeof(float));
}

static double sigmoid(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

/* Of one row: [classes] into probabilities. */
static void softmax(const float *x, size_t classes, float *out)
{
    double most = (double)x[0], sum = 0.0;

    for (size_t i = 1; i < classes; i++) {
        most = (double)x[i] > most ? (double)x[i] : most;
    }
    for (size_t i = 0; i < classes; i++) {
        sum += exp((double)x[i] - most);
    }
    for (size_t i = 0; i < classes; i++) {
        out[i] = (float)(exp((double)x[i] - most) / sum);
    }
}

static void finish_row(const struct dp_predictor *p, const float *x, float *out)
{
    const size_t classes = p->model->classes;

    if (p->model->loss == DP_LOSS_SOFTMAX) {
        softmax(x, classes, out);
    } else if (p->info.kind == DP_PREDICT_CLASSES) {
        out[1] = (float)sigmoid((double)x[0]);
        out[0] = (float)sigmoid(-(double)x[0]);
    } else {
        for (size_t i = 0; i < classes; i++) {
            out[i] = p->info.kind == DP_PREDICT_NUMBERS ? x[i] : (float)sigmoid((double)x[i]);
        }
    }
}

dp_status dp_predictor_run(struct dp_predictor *p, enum dp_element element, const void *samples,
                           size_t rows, float *outputs)
{
    struct feed *feed = &p->feeds[element];

    p->model->float_samples = element == DP_ELEMENT_FLOAT;
    if (feed->pass == NULL) {
        DP_TRY(make_feed(p, feed, element == DP_ELEMENT_FLOAT ? 1.0 : 255.0));
    }
    DP_TRY(compute(p, feed, samples, rows));
    for (size_t row = 0; row < rows; row++) {
        finish_row(p, p->raw + row * p->model->classes, outputs + row * p->info.outputs);
    }
    return DP_OK;
}
