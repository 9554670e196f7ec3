/* Parses a name: which kind of thing it asks for, and of what. A pure function that does not read the catalog.
 *
 *   [tag.]NAME.service[.DC].DOMAIN        tags may have dots: v1.2.db.service.coord
 *   _NAME._TAG[.service][.DC].DOMAIN      RFC 2782, exactly two labels; _tcp is no tag
 *   NODE.node[.DC].DOMAIN                 nodes may have dots
 *   HEX.addr[.DC].DOMAIN                  8 or 32 hex digits: the address itself (targets of SRV records)
 *   ns.DOMAIN                             the servers
 *   d.c.b.a.in-addr.arpa, ....ip6.arpa    reverse
 *
 * DC is one label, or DC.dc. Upper and lower case are the same. */
#ifndef COORD_DNS_NAME_H
#define COORD_DNS_NAME_H

#include "base/buffer.h"
#include "base/error.h"
#include "dns/packet.h"

/* A name in wire form. */
struct wire_name {
    uint8_t size; /* with the root label; 0: not a name */
    uint8_t data[PACKET_NAME_MAX];
};
void wire_name_root(struct wire_name *name);
/* Puts labels in front of the name. `text`: labels joined by dots, no dot at the ends; bytes are taken as they
 * are. False, and an unusable name (size 0), when a label is empty or longer than 63, or the name longer than 255. */
bool wire_name_prepend(struct wire_name *name, struct slice text);
bool wire_name_from_text(struct wire_name *name, struct slice text); /* a whole name, a dot at its end allowed */
void wire_name_lower(uint8_t *to, const uint8_t *from, size_t size); /* length bytes are below 64: not letters */

/* The domains that we answer for. Targets are written with the first. */
struct name_zone {
    struct wire_name domains[2]; /* lower case */
    unsigned count;
};
int name_zone_set(struct name_zone *zone, const char *domain, const char *alt_domain, struct fault *fault);

enum name_kind {
    NAME_OUTSIDE, /* not in our domains */
    NAME_NONE,    /* in a domain of ours, but of no known form */
    NAME_PARENT,  /* has no records itself, names below it may: service.coord, dc1.coord */
    NAME_APEX,    /* the domain */
    NAME_SERVERS, /* ns.DOMAIN */
    NAME_SERVICE,
    NAME_NODE,
    NAME_ADDRESS,
    NAME_REVERSE,
};
/* Slices point into `text`; all in lower case. */
struct name {
    enum name_kind kind;
    unsigned domain;         /* index into the zone */
    struct slice datacenter; /* empty: not given */
    struct slice service, tag, node;
    /* SERVICE: _TAG.service.DOMAIN. A service of this name may exist; if not, names below it (_NAME._TAG) may */
    bool maybe_parent;
    uint8_t address[16], address_size; /* 4 or 16: ADDRESS, REVERSE */
    /* Where in the wire name the domain begins, and the zone: the part of the domain that a resolver may forward by
     * itself: service.coord, service.dc1.coord, dc1.coord, else the domain. The zone owns the SOA of a negative answer,
     * because BIND and others that forward only service.coord refuse an SOA of a name above it. */
    uint8_t domain_at, zone_at;
    char text[PACKET_NAME_MAX + 1]; /* all of it, a dot before each label */
};
/* `wire`: an uncompressed name in any case; anything else is NAME_OUTSIDE. */
void name_parse(const struct name_zone *zone, const uint8_t *wire, size_t size, struct name *name);

#endif
