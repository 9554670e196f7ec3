/* Any bytes as a name: its meaning does not depend on case, and its parts lie inside of the text. */
#include <stdlib.h>

#include "base/check.h"
#include "base/host.h"
#include "base/memory.h"
#include "dns/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(const struct name *name, struct slice part) {
    if (part.size == 0) return;
    CHECK(part.data >= name->text && part.data + part.size <= name->text + sizeof(name->text));
    for (size_t i = 0; i < part.size; i++) CHECK(part.data[i] < 'A' || part.data[i] > 'Z');
}

static void check_parsed(const struct name *name) {
    check_inside(name, name->service);
    check_inside(name, name->tag);
    check_inside(name, name->node);
    check_inside(name, name->datacenter);
    CHECK(name->domain < 2);
    CHECK(name->zone_at <= name->domain_at);
    bool inside = name->kind != NAME_OUTSIDE && name->kind != NAME_REVERSE;
    CHECK(inside ? name->text[name->zone_at] == '.' && name->text[name->domain_at] == '.' : name->domain_at == 0);
    CHECK((name->kind == NAME_SERVICE) == (name->service.size > 0));
    CHECK((name->kind == NAME_NODE) == (name->node.size > 0));
    CHECK(name->tag.size == 0 || name->kind == NAME_SERVICE);
    if (name->kind == NAME_ADDRESS || name->kind == NAME_REVERSE)
        CHECK(name->address_size == 4 || name->address_size == 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct name_zone zone;
    if (zone.count == 0) CHECK(name_zone_set(&zone, "coord", "alt.example", NULL) == CO_OK);
    uint8_t *exact = malloc(size ? size : 1), *lower = malloc(size ? size : 1);
    if (size) memcpy(exact, data, size);
    wire_name_lower(lower, exact, size);
    struct name one, other;
    name_parse(&zone, exact, size, &one);
    name_parse(&zone, lower, size, &other);
    check_parsed(&one);
    CHECK(one.kind == other.kind && one.domain == other.domain);
    CHECK(slice_equal(one.service, other.service) && slice_equal(one.tag, other.tag) &&
          slice_equal(one.node, other.node));

    struct wire_name wire;
    struct slice text = slice_make(exact, size);
    if (wire_name_from_text(&wire, text)) {
        CHECK(wire.size >= 3 && wire.data[wire.size - 1] == 0);
        name_parse(&zone, wire.data, wire.size, &one);
        check_parsed(&one);
    } else {
        CHECK(wire.size == 0);
    }
    /* A text that is taken for a host name can be written. */
    char *line = mem_strndup((const char *)exact, size);
    struct host host = host_parse(line);
    CHECK(host.size == 0 || host.size == 4 || host.size == 16);
    CHECK(host.name.size == 0 || (host.size == 0 && wire_name_from_text(&wire, host.name)));
    free(line);
    free(exact);
    free(lower);
    return 0;
}
