#include "base/host.h"

#include <arpa/inet.h>
#include <ctype.h>

enum { LABEL_MOST = 63, NAME_MOST = 253 };

static bool label_valid(struct slice label) {
    if (label.size == 0 || label.size > LABEL_MOST || label.data[0] == '-' || label.data[label.size - 1] == '-')
        return false;
    for (size_t i = 0; i < label.size; i++) {
        unsigned char c = (unsigned char)label.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !isdigit(c) && c != '-' && c != '_') return false;
    }
    return true;
}

static bool is_number(struct slice label) {
    bool hex = label.size >= 2 && label.data[0] == '0' && (label.data[1] == 'x' || label.data[1] == 'X');
    for (size_t i = hex ? 2 : 0; i < label.size; i++) {
        unsigned char c = (unsigned char)label.data[i];
        if (hex ? !isxdigit(c) : !isdigit(c)) return false;
    }
    return true;
}

static struct slice last_label(struct slice text) {
    size_t start = text.size;
    while (start > 0 && text.data[start - 1] != '.') start--;
    return slice_make(text.data + start, text.size - start);
}

bool host_labels_valid(struct slice text) {
    if (text.size > NAME_MOST) return false;
    for (;;) {
        struct slice label = last_label(text);
        if (!label_valid(label)) return false;
        if (label.size == text.size) return true;
        text.size -= label.size + 1;
    }
}

bool host_name_valid(struct slice text) {
    if (text.size && text.data[text.size - 1] == '.') text.size--;
    return host_labels_valid(text) && !is_number(last_label(text));
}

static void unmap(struct host *host) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (host->size != 16 || memcmp(host->address, mapped, sizeof(mapped)) != 0) return;
    memmove(host->address, host->address + 12, 4);
    host->size = 4;
}

struct host host_parse(const char *text) {
    struct host host = {0};
    if (inet_pton(AF_INET, text, host.address) == 1) host.size = 4;
    else if (inet_pton(AF_INET6, text, host.address) == 1) host.size = 16;
    else if (host_name_valid(slice_text(text))) host.name = slice_text(text);
    unmap(&host);
    return host;
}
