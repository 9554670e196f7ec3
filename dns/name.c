#include "dns/name.h"

#include "base/host.h"

enum { LABEL_MAX = 63, LABELS_MAX = PACKET_NAME_MAX / 2 };

/* -- wire form ---------------------------------------------------------------------------------------------------- */

void wire_name_root(struct wire_name *name) {
    name->size = 1;
    name->data[0] = 0;
}

static bool labels_write(uint8_t *to, struct slice text) {
    size_t start = 0;
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && text.data[i] != '.') continue;
        size_t length = i - start;
        if (length == 0 || length > LABEL_MAX) return false;
        *to++ = (uint8_t)length;
        memcpy(to, text.data + start, length);
        to += length;
        start = i + 1;
    }
    return true;
}

bool wire_name_prepend(struct wire_name *name, struct slice text) {
    size_t added = text.size + 1;
    if (name->size == 0 || text.size == 0 || added + name->size > PACKET_NAME_MAX) {
        name->size = 0;
        return false;
    }
    memmove(name->data + added, name->data, name->size);
    bool good = labels_write(name->data, text);
    name->size = good ? (uint8_t)(name->size + added) : 0;
    return good;
}

bool wire_name_from_text(struct wire_name *name, struct slice text) {
    wire_name_root(name);
    if (text.size && text.data[text.size - 1] == '.') text.size--;
    return wire_name_prepend(name, text);
}

void wire_name_lower(uint8_t *to, const uint8_t *from, size_t size) {
    for (size_t i = 0; i < size; i++) to[i] = (uint8_t)(from[i] + ((uint8_t)(from[i] - 'A') < 26 ? 32 : 0));
}

/* -- zone --------------------------------------------------------------------------------------------------------- */

static int zone_add(struct name_zone *zone, const char *domain, struct fault *fault) {
    struct wire_name *name = &zone->domains[zone->count];
    struct slice text = slice_text(domain);
    if (text.size && text.data[text.size - 1] == '.') text.size--;
    if (!host_labels_valid(text) || !wire_name_from_text(name, text)) {
        return fault_set(fault, CO_INVALID, "'%.80s' is not a DNS domain", domain);
    }
    wire_name_lower(name->data, name->data, name->size);
    zone->count++;
    return CO_OK;
}

int name_zone_set(struct name_zone *zone, const char *domain, const char *alt_domain, struct fault *fault) {
    zone->count = 0;
    int rv = zone_add(zone, domain, fault);
    if (rv == CO_OK && alt_domain && *alt_domain) rv = zone_add(zone, alt_domain, fault);
    return rv;
}

/* -- reading a name ----------------------------------------------------------------------------------------------- */

struct labels {
    unsigned count;
    struct slice items[LABELS_MAX + 1];
};

/* Writes the labels to `text` in lower case, with dots in the place of length bytes, so that neighbouring labels can be
 * read as one slice. */
static bool labels_read(const uint8_t *wire, size_t size, char *text, struct labels *labels) {
    if (size == 0 || size > PACKET_NAME_MAX) return false;
    labels->count = 0;
    size_t at = 0;
    while (wire[at] != 0) {
        size_t length = wire[at];
        if (length > LABEL_MAX || at + 1 + length >= size) return false;
        text[at] = '.';
        wire_name_lower((uint8_t *)text + at + 1, wire + at + 1, length);
        labels->items[labels->count++] = slice_make(text + at + 1, length);
        at += 1 + length;
    }
    text[at] = '\0';
    return at + 1 == size;
}

/* Labels first..last-1 as one slice with dots; empty when there are none. */
static struct slice labels_join(const struct labels *labels, unsigned first, unsigned last) {
    if (first >= last) return SLICE_LITERAL("");
    const char *start = labels->items[first].data;
    const struct slice *end = &labels->items[last - 1];
    return slice_make(start, (size_t)(end->data + end->size - start));
}

static bool zone_find(const struct name_zone *zone, const uint8_t *wire, size_t size, const struct labels *labels,
                      unsigned *domain, unsigned *own_labels) {
    uint8_t lower[PACKET_NAME_MAX];
    wire_name_lower(lower, wire, size);
    for (unsigned i = 0; i < zone->count; i++) {
        const struct wire_name *name = &zone->domains[i];
        size_t at = 0;
        for (unsigned label = 0; label <= labels->count && size - at >= name->size; label++) {
            if (size - at == name->size && memcmp(lower + at, name->data, name->size) == 0) {
                *domain = i;
                *own_labels = label;
                return true;
            }
            at += 1 + lower[at];
        }
    }
    return false;
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static void address_read(const struct labels *labels, unsigned count, struct name *name) {
    struct slice hex = labels->items[0];
    name->kind = NAME_NONE;
    if (count != 1 || (hex.size != 8 && hex.size != 32)) return;
    for (size_t i = 0; i < hex.size; i += 2) {
        int high = hex_digit(hex.data[i]), low = hex_digit(hex.data[i + 1]);
        if (high < 0 || low < 0) return;
        name->address[i / 2] = (uint8_t)(high << 4 | low);
    }
    name->address_size = (uint8_t)(hex.size / 2);
    name->kind = NAME_ADDRESS;
}

static struct slice without_first(struct slice text) { return slice_make(text.data + 1, text.size - 1); }
static bool underscored(struct slice label) { return label.size > 1 && label.data[0] == '_'; }

/* _name._tag */
static bool rfc2782_read(const struct labels *labels, unsigned count, struct name *name) {
    if (count != 2 || !underscored(labels->items[0]) || !underscored(labels->items[1])) return false;
    name->kind = NAME_SERVICE;
    name->service = without_first(labels->items[0]);
    if (!slice_is(labels->items[1], "_tcp")) name->tag = without_first(labels->items[1]);
    return true;
}

static void service_read(const struct labels *labels, unsigned count, struct name *name) {
    if (rfc2782_read(labels, count, name)) return;
    name->kind = NAME_SERVICE;
    name->service = labels->items[count - 1];
    name->tag = labels_join(labels, 0, count - 1);
    name->maybe_parent = count == 1 && underscored(labels->items[0]);
}

/* The zone begins with this label. */
static void zone_set(struct name *name, struct slice label) { name->zone_at = (uint8_t)(label.data - 1 - name->text); }

/* Reads the labels between the kind and the domain: none, DC, or DC.dc. */
static bool datacenter_read(const struct labels *labels, unsigned first, unsigned end, struct name *name) {
    unsigned count = end - first;
    if (count == 2 && slice_is(labels->items[first + 1], "dc")) count = 1;
    if (count > 1) return false;
    if (count == 1) {
        name->datacenter = labels->items[first];
        zone_set(name, labels->items[first]);
    }
    return true;
}

static bool is_kind(struct slice label) {
    return slice_is(label, "service") || slice_is(label, "node") || slice_is(label, "addr");
}

/* The kind is the rightmost label that names one; RFC 2782 names may leave it out. */
static void own_read(const struct labels *labels, unsigned own, struct name *name) {
    unsigned at = own;
    while (at > 0 && !is_kind(labels->items[at - 1]) && !underscored(labels->items[at - 1])) at--;
    if (at == 0) {
        if (own == 1 && slice_is(labels->items[0], "ns")) name->kind = NAME_SERVERS;
        else if (own == 1 && slice_is(labels->items[0], "dc")) name->kind = NAME_PARENT; /* of DC.dc */
        else if (datacenter_read(labels, 0, own, name)) name->kind = NAME_PARENT;
        return;
    }
    if (!datacenter_read(labels, at, own, name)) return;
    struct slice kind = labels->items[at - 1];
    unsigned parts = at - 1;
    if (!is_kind(kind)) {
        if (at == 1) name->kind = NAME_PARENT;
        else (void)rfc2782_read(labels, at, name);
        return;
    }
    zone_set(name, kind);
    if (parts == 0) {
        name->kind = NAME_PARENT;
    } else if (slice_is(kind, "service")) {
        service_read(labels, parts, name);
    } else if (slice_is(kind, "node")) {
        name->kind = NAME_NODE;
        name->node = labels_join(labels, 0, parts);
    } else {
        address_read(labels, parts, name);
    }
}

/* -- reverse names ------------------------------------------------------------------------------------------------ */

static bool octet_read(struct slice label, uint8_t *value) {
    unsigned number = 0;
    if (label.size == 0 || label.size > 3 || (label.size > 1 && label.data[0] == '0')) return false;
    for (size_t i = 0; i < label.size; i++) {
        if (label.data[i] < '0' || label.data[i] > '9') return false;
        number = number * 10 + (unsigned)(label.data[i] - '0');
    }
    *value = (uint8_t)number;
    return number <= 255;
}

static bool reverse4_read(const struct labels *labels, struct name *name) {
    for (unsigned i = 0; i < 4; i++) {
        if (!octet_read(labels->items[i], &name->address[3 - i])) return false;
    }
    name->address_size = 4;
    return true;
}

static bool reverse6_read(const struct labels *labels, struct name *name) {
    for (unsigned i = 0; i < 32; i++) {
        struct slice label = labels->items[i];
        int digit = label.size == 1 ? hex_digit(label.data[0]) : -1;
        if (digit < 0) return false;
        uint8_t *byte = &name->address[15 - i / 2];
        *byte = (uint8_t)(i % 2 ? *byte | digit << 4 : digit);
    }
    name->address_size = 16;
    return true;
}

static bool reverse_read(const struct labels *labels, struct name *name) {
    unsigned count = labels->count;
    if (count < 2 || !slice_is(labels->items[count - 1], "arpa")) return false;
    if (slice_is(labels->items[count - 2], "in-addr")) return count == 6 && reverse4_read(labels, name);
    return slice_is(labels->items[count - 2], "ip6") && count == 34 && reverse6_read(labels, name);
}

/* False: a label has a dot or NUL inside, which would have another meaning when the labels are joined. */
static bool labels_plain(const struct labels *labels, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct slice label = labels->items[i];
        if (memchr(label.data, '.', label.size) || memchr(label.data, 0, label.size)) return false;
    }
    return true;
}

void name_parse(const struct name_zone *zone, const uint8_t *wire, size_t size, struct name *name) {
    struct labels labels;
    unsigned own = 0;
    name->kind = NAME_OUTSIDE;
    name->domain = 0;
    name->datacenter = name->service = name->tag = name->node = SLICE_LITERAL("");
    name->address_size = 0;
    name->maybe_parent = false;
    name->domain_at = name->zone_at = 0;
    if (!labels_read(wire, size, name->text, &labels)) return;
    if (!zone_find(zone, wire, size, &labels, &name->domain, &own)) {
        if (reverse_read(&labels, name)) name->kind = NAME_REVERSE;
        return;
    }
    name->kind = NAME_NONE;
    name->domain_at = name->zone_at = (uint8_t)(size - zone->domains[name->domain].size);
    if (own == 0) name->kind = NAME_APEX;
    else if (labels_plain(&labels, own)) own_read(&labels, own, name);
}
