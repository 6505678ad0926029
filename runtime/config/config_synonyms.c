#include "runtime/config/config_synonyms.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct synonym {
    const char *word;  /* in small letters, without '-' and '_' */
    const char *where; /* NULL: in any section */
    const char *meaning;
};

static const struct synonym synonyms[] = {
    /* keys; within their own section they are named without it */
    {"batchsize", "train", "global_batch"},
    {"batch", "train", "global_batch"},
    {"batchsize", NULL, "train.global_batch"},
    {"batch", NULL, "train.global_batch"},
    {"globalbatch", NULL, "train.global_batch"},
    {"maxsteps", "train", "steps"},
    {"numepochs", "train", "epochs"},
    {"epochs", NULL, "train.epochs"},
    {"numepochs", NULL, "train.epochs"},
    {"steps", NULL, "train.steps"},
    {"maxsteps", NULL, "train.steps"},
    {"seed", NULL, "train.seed"},
    {"precision", NULL, "train.precision"},
    {"loss", NULL, "train.loss"},
    {"smoothing", "train", "label_smoothing"},
    {"labelsmoothing", NULL, "train.label_smoothing"},
    {"learningrate", "optimizer", "lr"},
    {"rate", "optimizer", "lr"},
    {"type", "optimizer", "name"},
    {"gradclip", "optimizer", "clip_norm"},
    {"maxgradnorm", "optimizer", "clip_norm"},
    {"lr", NULL, "optimizer.lr"},
    {"learningrate", NULL, "optimizer.lr"},
    {"momentum", NULL, "optimizer.momentum"},
    {"weightdecay", NULL, "optimizer.weight_decay"},
    {"scheduler", "optimizer", "schedule"},
    {"warmup", "optimizer.schedule", "warmup_steps"},
    {"path", "data", "dir"},
    {"root", "data", "dir"},
    {"numworkers", "data", "workers"},
    {"numworkers", NULL, "data.workers"},
    {"datadir", NULL, "data.dir"},
    {"strategy", NULL, "comm.strategy"},
    {"compressor", NULL, "comm.compressor"},
    {"lanes", NULL, "train.lanes"},
    {"device", "train", "device.name"},
    {"threads", NULL, "--threads N"},
    {"numthreads", NULL, "--threads N"},
    /* kinds of layers */
    {"linear", "layers", "dense"},
    {"fc", "layers", "dense"},
    {"fullyconnected", "layers", "dense"},
    {"conv", "layers", "conv2d"},
    {"convolution", "layers", "conv2d"},
    {"depthwiseconv2d", "layers", "conv2d"},
    {"bn", "layers", "batchnorm"},
    {"batchnorm1d", "layers", "batchnorm"},
    {"batchnorm2d", "layers", "batchnorm"},
    {"maxpool2d", "layers", "maxpool"},
    {"maxpooling2d", "layers", "maxpool"},
    {"avgpool2d", "layers", "avgpool"},
    {"averagepooling2d", "layers", "avgpool"},
    {"adaptiveavgpool2d", "layers", "global_avgpool"},
    {"globalaveragepooling2d", "layers", "global_avgpool"},
    /* options of layers */
    {"outfeatures", "dense", "units"},
    {"features", "dense", "units"},
    {"filters", "dense", "units"},
    {"size", "dense", "units"},
    {"outchannels", "conv2d", "filters"},
    {"channels", "conv2d", "filters"},
    {"units", "conv2d", "filters"},
    {"kernelsize", "conv2d", "kernel"},
    {"size", "conv2d", "kernel"},
    {"kernel", "maxpool", "size"},
    {"kernelsize", "maxpool", "size"},
    {"kernel", "avgpool", "size"},
    {"kernelsize", "avgpool", "size"},
    {"epsilon", "batchnorm", "eps"},
    {"p", "dropout", "rate"},
    {"prob", "dropout", "rate"},
    {"probability", "dropout", "rate"},
};

static const struct {
    const char *word, *why;
} no_layers[] = {
    {"softmax", "train.loss softmax_cross_entropy has it built in, so outputs need none: leave it "
                "out"},
    {"logsoftmax", "train.loss softmax_cross_entropy has it built in, so outputs need none: leave "
                   "it out"},
    {"sigmoid", "train.loss binary_cross_entropy has it built in, so outputs need none: leave it "
                "out"},
};

/* Whether two words are the same but for capitals, '-' and '_' of the first. */
static bool same_word(const char *written, const char *word)
{
    for (; *written != '\0'; written++) {
        if (*written == '_' || *written == '-') {
            continue;
        }
        const bool capital = *written >= 'A' && *written <= 'Z';
        if ((capital ? *written - 'A' + 'a' : *written) != *word) {
            return false;
        }
        word++;
    }
    return *word == '\0';
}

static bool is_section(const char *where)
{
    return where[0] == '\0' || strcmp(where, "train") == 0 || strcmp(where, "optimizer") == 0 ||
           strcmp(where, "data") == 0 || strcmp(where, "comm") == 0 || strcmp(where, "model") == 0;
}

const char *dp_config_synonym(const char *where, const char *word)
{
    for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++) {
        const struct synonym *s = &synonyms[i];
        const bool here = s->where != NULL ? strcmp(s->where, where) == 0 : is_section(where);

        if (here && same_word(word, s->word)) {
            return s->meaning;
        }
    }
    return NULL;
}

const char *dp_config_flag_meant(const char *flag, char *text, size_t size)
{
    const char *key = dp_config_synonym("", flag);

    if (key == NULL || key[0] == '-') {
        return key;
    }
    (void)snprintf(text, size, "--set %s=...", key);
    return text;
}

const char *dp_config_no_layer(const char *word)
{
    for (size_t i = 0; i < sizeof(no_layers) / sizeof(no_layers[0]); i++) {
        if (same_word(word, no_layers[i].word)) {
            return no_layers[i].why;
        }
    }
    return NULL;
}
