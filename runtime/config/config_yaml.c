#include "runtime/config/config_yaml.h"

#include <string.h>

#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    struct dp_pool *pool; /* borrowed, as all below */
    const char *text;
    size_t length;
    const char *origin, *key;
    bool lines;
};

static struct dp_place place_of(const struct reader *r, const yaml_mark_t *mark)
{
    struct dp_place place = {r->origin, 0, 0};

    if (r->lines) {
        place.line = (int)mark->line + 1;
        place.column = (int)mark->column + 1;
    }
    return place;
}

/* libyaml reports the place of bad bytes only by their offset. */
static yaml_mark_t mark_at(const struct reader *r, size_t offset)
{
    yaml_mark_t mark = {0, 0, 0};

    for (size_t i = 0; i < offset && i < r->length; i++) {
        const unsigned char c = (unsigned char)r->text[i];
        if (c == '\n') {
            mark.line++;
            mark.column = 0;
        } else if ((c & 0xc0) != 0x80) {
            mark.column++; /* a UTF-8 character counts once */
        }
    }
    return mark;
}

static dp_status refuse_at(const struct reader *r, const yaml_mark_t *mark, const char *message)
{
    const struct dp_place place = place_of(r, mark);

    return dp_config_refuse(&place, r->key, "%s", message);
}

static dp_status say_syntax(const struct reader *r)
{
    const yaml_parser_t *parser = &r->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "unreadable";
    yaml_mark_t mark = parser->problem_mark;
    struct dp_place place;

    if (parser->error == YAML_MEMORY_ERROR) {
        return dp_config_no_memory();
    }
    if (parser->error == YAML_READER_ERROR) {
        mark = mark_at(r, parser->problem_offset);
    }
    place = place_of(r, &mark);
    return dp_config_refuse(&place, r->key, "not valid YAML: %s", problem);
}

/* The next event; on success the caller deletes it. */
static dp_status next_event(struct reader *r, yaml_event_t *event)
{
    return yaml_parser_parse(&r->parser, event) != 0 ? DP_OK : say_syntax(r);
}

static dp_status check_plain_yaml(const struct reader *r, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return refuse_at(r, &event->start_mark, "aliases (*name) are not allowed");
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
            return refuse_at(r, &event->start_mark, "zero bytes are not allowed");
        }
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor != NULL) {
        return refuse_at(r, &event->start_mark, "anchors (&name) are not allowed");
    }
    return tag == NULL ? DP_OK : refuse_at(r, &event->start_mark, "tags (!name) are not allowed");
}

static dp_status make_node(struct reader *r, const yaml_event_t *event, struct dp_yaml_node **out)
{
    struct dp_yaml_node *node = dp_pool_take(r->pool, sizeof(*node));

    DP_TRY(check_plain_yaml(r, event));
    if (node == NULL) {
        return dp_config_no_memory();
    }
    node->at = place_of(r, &event->start_mark);
    node->kind = event->type == YAML_SEQUENCE_START_EVENT  ? DP_YAML_LIST
                 : event->type == YAML_MAPPING_START_EVENT ? DP_YAML_MAP
                                                           : DP_YAML_SCALAR;
    if (node->kind == DP_YAML_SCALAR) {
        node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        node->text = dp_pool_copy(r->pool, (const char *)event->data.scalar.value,
                                  event->data.scalar.length);
        if (node->text == NULL) {
            return dp_config_no_memory();
        }
    }
    *out = node;
    return DP_OK;
}

static dp_status read_entries(struct reader *r, struct dp_yaml_node *parent, int depth);

/* Makes a node of the event, and of the events inside it. */
static dp_status read_node(struct reader *r, const yaml_event_t *event, int depth,
                           struct dp_yaml_node **out)
{
    DP_TRY(make_node(r, event, out));
    if ((*out)->kind == DP_YAML_SCALAR) {
        return DP_OK;
    }
    if (depth == DP_YAML_DEPTH) {
        return refuse_at(r, &event->start_mark, "nested too deeply (more than 64 levels)");
    }
    return read_entries(r, *out, depth + 1);
}

/* Reads the key that `event` holds, and the value after it. */
static dp_status read_pair(struct reader *r, const yaml_event_t *event, int depth,
                           struct dp_yaml_node **out)
{
    const struct dp_place key_at = place_of(r, &event->start_mark);
    struct dp_yaml_node *key = NULL;
    yaml_event_t value;
    dp_status status;

    if (event->type != YAML_SCALAR_EVENT && event->type != YAML_ALIAS_EVENT) {
        return refuse_at(r, &event->start_mark, "a key must be a plain word");
    }
    DP_TRY(make_node(r, event, &key));
    DP_TRY(next_event(r, &value));
    status = read_node(r, &value, depth, out);
    yaml_event_delete(&value);
    if (status == DP_OK) {
        (*out)->key = key->text;
        (*out)->key_at = key_at;
    }
    return status;
}

static dp_status read_entries(struct reader *r, struct dp_yaml_node *parent, int depth)
{
    struct dp_yaml_node **tail = &parent->first;
    dp_status status = DP_OK;
    bool ended = false;

    while (status == DP_OK && !ended) {
        yaml_event_t event;
        DP_TRY(next_event(r, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT) {
            ended = true;
        } else if (parent->kind == DP_YAML_MAP) {
            status = read_pair(r, &event, depth, tail);
        } else {
            status = read_node(r, &event, depth, tail);
        }
        yaml_event_delete(&event);
        if (!ended && status == DP_OK) {
            tail = &(*tail)->next;
        }
    }
    return status;
}

/* Reads stream and document up to the end, with at most one root node. */
static dp_status read_stream(struct reader *r, struct dp_yaml_node **root)
{
    dp_status status = DP_OK;
    bool ended = false;
    int documents = 0;

    while (status == DP_OK && !ended) {
        yaml_event_t event;
        DP_TRY(next_event(r, &event));
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (documents++ > 0) {
                status = refuse_at(r, &event.start_mark, "a second document is not allowed");
            }
            break;
        case YAML_STREAM_END_EVENT:
            ended = true;
            break;
        default:
            status = read_node(r, &event, 0, root);
            break;
        }
        yaml_event_delete(&event);
    }
    return status;
}

dp_status dp_yaml_parse(struct dp_pool *pool, const char *text, size_t length, const char *origin,
                        bool lines, const char *key, struct dp_yaml_node **root)
{
    /* A byte order mark, which some editors write, counts as a column in libyaml. */
    const size_t mark = lines && length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    struct reader r = {
        .pool = pool, .text = text + mark, .length = length - mark, .origin = origin};
    struct dp_yaml_node *found = dp_pool_take(pool, sizeof(*found));
    dp_status status;

    if (found == NULL || yaml_parser_initialize(&r.parser) == 0) {
        return dp_config_no_memory();
    }
    *found = (struct dp_yaml_node){.text = "", .plain = true, .at = {origin, lines ? 1 : 0, 1}};
    r.key = key;
    r.lines = lines;
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)r.text, r.length);
    status = read_stream(&r, &found);
    yaml_parser_delete(&r.parser);
    if (status == DP_OK) {
        *root = found;
    }
    return status;
}
