/* JSON out: an append-only writer into a buffer, for hot paths. Commas are placed by the writer; keys are literals
 * written as they are. Strings are escaped as Go's encoding/json does (also < > & as \u003c..., U+2028/9; bytes that
 * are not UTF-8 become \ufffd), so that answers equal Consul's byte for byte.
 *
 *     struct json_out j; json_out_init(&j, &buffer, pretty);
 *     json_object(&j); json_key(&j, "Node"); json_string(&j, name); json_object_end(&j); */
#ifndef COORD_BASE_JSON_OUT_H
#define COORD_BASE_JSON_OUT_H

#include "base/buffer.h"

struct json_out {
    struct buffer *out;
    bool pretty;    /* 4 blanks of indentation, as Consul's ?pretty */
    bool comma;     /* a value stands before the next one on this level */
    bool after_key; /* the next value belongs to the key just written */
    unsigned depth;
};

void json_out_init(struct json_out *json, struct buffer *out, bool pretty);
/* json-c has types of the names json_object and json_bool; files that read and write JSON see both. */
#define json_object(json)      json_out_object(json)
#define json_bool(json, value) json_out_bool(json, value)
void json_out_object(struct json_out *json);
void json_object_end(struct json_out *json);
void json_array(struct json_out *json);
void json_array_end(struct json_out *json);
void json_key_slice(struct json_out *json, struct slice key); /* escaped */
void json_key_raw(struct json_out *json, const char *key, size_t size);
#define json_key(json, literal) json_key_raw((json), "" literal, sizeof(literal) - 1)
void json_string(struct json_out *json, const char *text); /* NULL as "" */
void json_slice(struct json_out *json, struct slice text);
void json_u64(struct json_out *json, uint64_t value);
void json_i64(struct json_out *json, int64_t value);
void json_double(struct json_out *json, double value);
void json_out_bool(struct json_out *json, bool value);
void json_null(struct json_out *json);
void json_base64(struct json_out *json, struct slice data); /* as a string */
void json_raw(struct json_out *json, struct slice text);    /* one value, written by somebody else */

#endif
