#include "base/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

void json_out_init(struct json_out *json, struct buffer *out, bool pretty) {
    *json = (struct json_out){.out = out, .pretty = pretty};
}

/* Where the next bytes go; room for `extra` of them is there. */
static inline char *room(struct buffer *out, size_t extra) {
    if (__builtin_expect(out->capacity - out->size < extra, 0)) buffer_reserve(out, extra);
    return out->data + out->size;
}

static inline void byte(struct buffer *out, char c) {
    *room(out, 1) = c;
    out->size++;
}

/* Most pieces are short, and a call of memcpy costs more than they do. */
static inline void copy(char *to, const char *from, size_t size) {
    if (size > 16) {
        memcpy(to, from, size);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else {
        for (size_t i = 0; i < size; i++) to[i] = from[i];
    }
}

static void newline(struct json_out *json) {
    byte(json->out, '\n');
    for (unsigned i = 0; i < json->depth; i++) buffer_append(json->out, "    ", 4);
}

/* Writes the comma after the preceding value, and the indentation, before a value or a key. */
static inline void separate(struct json_out *json) {
    if (json->comma) byte(json->out, ',');
    if (json->pretty && json->depth > 0) newline(json);
}

static inline void before_value(struct json_out *json) {
    if (json->after_key) {
        json->after_key = false;
    } else {
        separate(json);
    }
    json->comma = true;
}

static inline void open_level(struct json_out *json, char bracket) {
    before_value(json);
    byte(json->out, bracket);
    json->depth++;
    json->comma = false;
}

static inline void close_level(struct json_out *json, char bracket) {
    CHECK(json->depth > 0 && !json->after_key);
    json->depth--;
    if (json->pretty && json->comma) newline(json);
    byte(json->out, bracket);
    json->comma = true;
}

void json_out_object(struct json_out *json) { open_level(json, '{'); }
void json_object_end(struct json_out *json) { close_level(json, '}'); }
void json_array(struct json_out *json) { open_level(json, '['); }
void json_array_end(struct json_out *json) { close_level(json, ']'); }

/* ---- strings ---- */

enum { PLAIN, ESCAPE, WIDE }; /* as is; ASCII that is escaped; the start of something that is not ASCII */

static const unsigned char kinds[256] = {
    [0x00 ... 0x1f] = ESCAPE, ['"'] = ESCAPE, ['\\'] = ESCAPE,        ['<'] = ESCAPE,
    ['>'] = ESCAPE,           ['&'] = ESCAPE, [0x80 ... 0xff] = WIDE,
};

/* Length of the plain run at the start of `text`. */
static size_t plain_run(const char *text, size_t size) {
    size_t at = 0;
#ifdef __SSE2__
    const __m128i blank = _mm_set1_epi8(0x20), quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i less = _mm_set1_epi8('<'), more = _mm_set1_epi8('>'), ampersand = _mm_set1_epi8('&');
    for (; size - at >= 16; at += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(const void *)(text + at));
        /* Signed: what is below a blank are the control characters and everything from 0x80. */
        __m128i found = _mm_cmplt_epi8(block, blank);
        found = _mm_or_si128(found, _mm_cmpeq_epi8(block, quote));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(block, backslash));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(block, less));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(block, more));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(block, ampersand));
        int mask = _mm_movemask_epi8(found);
        if (mask) return at + (size_t)__builtin_ctz((unsigned)mask);
    }
#endif
    while (at < size && kinds[(unsigned char)text[at]] == PLAIN) at++;
    return at;
}

static void append_escape(struct buffer *out, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    switch (c) {
        case '"':
        case '\\': text[1] = (char)c; break;
        case '\n': text[1] = 'n'; break;
        case '\r': text[1] = 'r'; break;
        case '\t': text[1] = 't'; break;
        default: buffer_append(out, text, 6); return;
    }
    buffer_append(out, text, 2);
}

/* Appends the character that `text` begins with, returns its length. */
static size_t append_wide(struct buffer *out, struct slice text) {
    size_t length = utf8_next(text);
    if (length == 0) {
        buffer_append(out, "\\ufffd", 6);
        return 1;
    }
    /* Line and paragraph separator end a line in JavaScript. */
    if (length == 3 && memcmp(text.data, "\u2028", 3) == 0) {
        buffer_append(out, "\\u2028", 6);
    } else if (length == 3 && memcmp(text.data, "\u2029", 3) == 0) {
        buffer_append(out, "\\u2029", 6);
    } else {
        buffer_append(out, text.data, length);
    }
    return length;
}

/* The rest of a text, from its first character that is not plain. */
static void append_escaped(struct buffer *out, struct slice text) {
    for (size_t at = 0; at < text.size;) {
        unsigned char c = (unsigned char)text.data[at];
        if (kinds[c] == ESCAPE) {
            append_escape(out, c);
            at++;
        } else if (kinds[c] == WIDE) {
            at += append_wide(out, slice_make(text.data + at, text.size - at));
        }
        size_t run = plain_run(text.data + at, text.size - at);
        buffer_append(out, text.data + at, run);
        at += run;
    }
}

static inline void append_quoted(struct buffer *out, struct slice text) {
    char *to = room(out, text.size + 2);
    *to++ = '"';
    size_t plain = plain_run(text.data, text.size);
    copy(to, text.data, plain);
    out->size += 1 + plain;
    if (__builtin_expect(plain < text.size, 0)) {
        append_escaped(out, slice_make(text.data + plain, text.size - plain));
        byte(out, '"');
    } else {
        to[plain] = '"';
        out->size++;
    }
}

static inline void after_key(struct json_out *json) {
    byte(json->out, ':');
    if (json->pretty) byte(json->out, ' ');
    json->comma = true;
    json->after_key = true;
}

void json_key_slice(struct json_out *json, struct slice key) {
    separate(json);
    append_quoted(json->out, key);
    after_key(json);
}

void json_key_raw(struct json_out *json, const char *key, size_t size) {
    struct buffer *out = json->out;
    if (json->pretty) {
        separate(json);
        json->comma = false;
    }
    char *to = room(out, size + 4);
    if (json->comma) *to++ = ',';
    *to++ = '"';
    copy(to, key, size);
    to += size;
    *to++ = '"';
    *to++ = ':';
    out->size = (size_t)(to - out->data);
    if (json->pretty) byte(out, ' ');
    json->comma = true;
    json->after_key = true;
}

void json_slice(struct json_out *json, struct slice text) {
    before_value(json);
    append_quoted(json->out, text);
}

void json_string(struct json_out *json, const char *text) { json_slice(json, slice_text(text ? text : "")); }

/* ---- the other values ---- */

void json_u64(struct json_out *json, uint64_t value) {
    before_value(json);
    buffer_append_u64(json->out, value);
}

void json_i64(struct json_out *json, int64_t value) {
    before_value(json);
    if (value < 0) byte(json->out, '-');
    buffer_append_u64(json->out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* As Go prints float64 in JSON: plain decimals from 1e-6 up to 1e21, else with an exponent of no needless zero. */
void json_double(struct json_out *json, double value) {
    before_value(json);
    CHECK(isfinite(value));
    char text[40];
    double_shortest(value, text, sizeof text);
    char *exponent = strchr(text, 'e');
    int power = atoi(exponent + 1);
    double size = fabs(value);
    if (size != 0 && (size < 1e-6 || size >= 1e21)) {
        *exponent = '\0';
        buffer_printf(json->out, "%se%c%02d", text, power < 0 ? '-' : '+', abs(power));
        struct buffer *out = json->out;
        if (power < 0 && power > -10) { /* e-09 is written e-9 */
            out->data[out->size - 2] = out->data[out->size - 1];
            out->size--;
        }
        return;
    }
    int digits = (int)(exponent - text) - (text[0] == '-');
    int significant = digits > 1 ? digits - 1 : 1; /* without the point */
    int decimals = significant - 1 - power;
    buffer_printf(json->out, "%.*f", decimals > 0 ? decimals : 0, value);
}

void json_out_bool(struct json_out *json, bool value) {
    before_value(json);
    buffer_append_text(json->out, value ? "true" : "false");
}

void json_null(struct json_out *json) {
    before_value(json);
    buffer_append(json->out, "null", 4);
}

void json_base64(struct json_out *json, struct slice data) {
    before_value(json);
    byte(json->out, '"');
    base64_encode(json->out, data.data, data.size);
    byte(json->out, '"');
}

void json_raw(struct json_out *json, struct slice text) {
    before_value(json);
    buffer_append(json->out, text.data, text.size);
}
