/* Checks that a text is JSON without building values; for text that is handed on as it is. */
#include "base/json_in.h"
#include "base/text.h"

#define DEPTH_MOST 64

struct scan {
    const char *at, *end;
};

static bool take(struct scan *scan, char c) {
    if (scan->at == scan->end || *scan->at != c) return false;
    scan->at++;
    return true;
}

static void blanks(struct scan *scan) {
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r'))
        scan->at++;
}

static bool word(struct scan *scan, const char *text) {
    size_t size = strlen(text);
    if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, text, size) != 0) return false;
    scan->at += size;
    return true;
}

static bool digits(struct scan *scan) {
    const char *start = scan->at;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9') scan->at++;
    return scan->at > start;
}

static bool number(struct scan *scan) {
    (void)take(scan, '-');
    if (!take(scan, '0') && !digits(scan)) return false;
    if (take(scan, '.') && !digits(scan)) return false;
    if (!take(scan, 'e') && !take(scan, 'E')) return true;
    if (!take(scan, '+')) (void)take(scan, '-');
    return digits(scan);
}

static bool hex(struct scan *scan) {
    for (int i = 0; i < 4; i++, scan->at++) {
        char c = scan->at < scan->end ? *scan->at : ' ';
        bool fine = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
        if (!fine) return false;
    }
    return true;
}

static bool string(struct scan *scan) {
    if (!take(scan, '"')) return false;
    while (scan->at < scan->end) {
        char c = *scan->at++;
        if (c == '"') return true;
        if ((unsigned char)c < ' ') return false;
        if (c != '\\') continue;
        if (scan->at == scan->end) return false;
        char escape = *scan->at++;
        if (escape == 'u' ? !hex(scan) : !strchr("\"\\/bfnrt", escape) || !escape) return false;
    }
    return false;
}

static bool value(struct scan *scan, unsigned depth);

static bool members(struct scan *scan, unsigned depth, char close) {
    blanks(scan);
    if (take(scan, close)) return true;
    do {
        blanks(scan);
        if (close == '}') {
            if (!string(scan)) return false;
            blanks(scan);
            if (!take(scan, ':')) return false;
        }
        if (!value(scan, depth)) return false;
        blanks(scan);
    } while (take(scan, ','));
    return take(scan, close);
}

static bool value(struct scan *scan, unsigned depth) {
    blanks(scan);
    if (scan->at == scan->end || depth == DEPTH_MOST) return false;
    switch (*scan->at) {
        case '{': scan->at++; return members(scan, depth + 1, '}');
        case '[': scan->at++; return members(scan, depth + 1, ']');
        case '"': return string(scan);
        case 't': return word(scan, "true");
        case 'f': return word(scan, "false");
        case 'n': return word(scan, "null");
        default: return number(scan);
    }
}

bool json_valid(struct slice text) {
    struct scan scan = {text.data, text.data + text.size};
    if (!text.size || !utf8_valid(text) || !value(&scan, 0)) return false;
    blanks(&scan);
    return scan.at == scan.end;
}
