#include "lb/load.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/memory.h"
#include "lb/figure.h"
#include "lb/keep.h"

#define BUCKETS_MIN 64
#define LATE_NS     UINT64_C(250000000)
/* A hint counts until the third missing report is half an interval late. */
#define AGE_OUT(interval_ns) ((interval_ns) / 2 * 7)
/* An entry stays for as long as the slowest reporter may be silent, because it has the reporter's interval. */
#define KEEP_NS AGE_OUT(LOAD_INTERVAL_MAX_NS)

struct entry {
    struct entry *chain; /* in its bucket */
    struct list changed; /* in table->changes */
    uint64_t hash;
    uint64_t sequence;      /* of its last change */
    struct load_hint hint;  /* load NAN: it never reported */
    uint64_t reported_ns;   /* when; or when it was started */
    uint64_t since_ns;      /* when it became known */
    uint64_t created;       /* the catalog's index of its registration; 0: not known */
    uint64_t created_ns;    /* when that became known */
    uint64_t since_hint_ns; /* by the hint: when the instance that said it began, */
    uint64_t late_ns;       /* or so much earlier, because ages come a little late */
    uint64_t interval_ns;   /* 0: not known yet */
    struct keep keep;
    bool direct;
    struct service *service; /* NULL: not known */
    uint64_t service_hash;   /* hash of its name */
    struct list of_service;  /* in service->entries, or by itself */
    uint32_t node_size, id_size;
    char names[]; /* node, service id */
};

/* A service, by its name in any case; it goes with its last entry. */
struct service {
    struct service *chain; /* in its bucket */
    struct list entries;
    struct list heard; /* in table->heard, or by itself */
    uint64_t hash;
    size_t counted; /* entries whose load was known at the last load_decide */
    bool known;     /* some entry has reported its load */
    uint32_t size;
    char name[];
};

struct load_table {
    struct entry **buckets;
    struct service **services;        /* buckets of services, as many as of entries */
    size_t bucket_count, count, most; /* number of buckets, a power of two; number of entries */
    struct list changes;              /* by sequence, the oldest first */
    struct list heard;                /* services whose load has changed since load_decide */
    uint64_t sequence, refused, begun;
};

/* -- services ----------------------------------------------------------------------------------------------------- */
static uint64_t service_hash(struct slice name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, because names are short and upper and lower case are the
                                                   * same */
    for (size_t i = 0; i < name.size; i++) {
        char byte = name.data[i];
        if (byte >= 'A' && byte <= 'Z') byte += 'a' - 'A';
        hash = (hash ^ (uint8_t)byte) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 29;
}

static struct slice name_of(const struct service *service) { return slice_make(service->name, service->size); }

static struct service **service_find(const struct load_table *table, struct slice name, uint64_t hash) {
    struct service **at = &table->services[hash & (table->bucket_count - 1)];
    while (*at && !((*at)->hash == hash && slice_equal_nocase(name_of(*at), name))) at = &(*at)->chain;
    return at;
}

static void service_leave(struct load_table *table, struct entry *entry) {
    struct service *service = entry->service;
    if (!service) return;
    entry->service = NULL;
    list_remove(&entry->of_service);
    if (!list_empty(&service->entries)) return;
    struct service **at = service_find(table, name_of(service), service->hash);
    *at = service->chain;
    list_remove(&service->heard);
    free(service);
}

static struct service *service_take(struct load_table *table, struct slice name) {
    uint64_t hash = service_hash(name);
    struct service **at = service_find(table, name, hash);
    if (*at) return *at;
    struct service *service = *at = mem_zalloc(sizeof *service + name.size);
    service->hash = hash, service->size = (uint32_t)name.size;
    memcpy(service->name, name.data, name.size);
    list_init(&service->entries);
    list_init(&service->heard);
    return service;
}

/* Mostly the entry has its service already, which its hash tells without a look at the service's memory. */
static void service_enter(struct load_table *table, struct entry *entry, struct slice name) {
    if (name.size == 0 || (entry->service && entry->service_hash == service_hash(name))) return;
    service_leave(table, entry);
    entry->service = service_take(table, name);
    entry->service_hash = entry->service->hash;
    list_append(&entry->service->entries, &entry->of_service);
}

static double errors_of(const struct entry *entry) { return isnan(entry->hint.errors) ? 0 : entry->hint.errors; }

/* An entry of the service has reported its load. */
static void service_speaks(struct load_table *table, struct entry *entry, uint64_t now_ns) {
    keep_report(&entry->keep, entry->hint.load, errors_of(entry), now_ns);
    if (!entry->service) return;
    if (list_empty(&entry->service->heard)) list_append(&table->heard, &entry->service->heard);
    if (entry->service->known) return;
    entry->service->known = true;
    table->begun++;
}

/* -- entries ------------------------------------------------------------------------------------------------------ */
static uint64_t hash_of(struct load_instance instance) {
    return hash64_seed(instance.service_id.data, instance.service_id.size,
                       hash64(instance.node.data, instance.node.size));
}

static struct load_instance instance_of(const struct entry *entry) {
    return (struct load_instance){.node = slice_make(entry->names, entry->node_size),
                                  .service_id = slice_make(entry->names + entry->node_size, entry->id_size),
                                  .service = entry->service ? name_of(entry->service) : slice_make("", 0)};
}

static struct entry **find(const struct load_table *table, struct load_instance instance, uint64_t hash) {
    struct entry **at = &table->buckets[hash & (table->bucket_count - 1)];
    for (; *at; at = &(*at)->chain) {
        struct load_instance other = instance_of(*at);
        if ((*at)->hash == hash && slice_equal(other.node, instance.node) &&
            slice_equal(other.service_id, instance.service_id))
            break;
    }
    return at;
}

static void drop(struct load_table *table, struct entry **at) {
    struct entry *entry = *at;
    *at = entry->chain;
    list_remove(&entry->changed);
    service_leave(table, entry);
    free(entry);
    table->count--;
}

static void drop_entry(struct load_table *table, struct entry *entry) {
    drop(table, find(table, instance_of(entry), entry->hash));
}

static void grow(struct load_table *table) {
    size_t count = 2 * table->bucket_count;
    struct entry **buckets = mem_zalloc(count * sizeof(struct entry *));
    LIST_FOREACH(at, &table->changes) {
        struct entry *entry = LIST_ENTRY(at, struct entry, changed), **bucket = &buckets[entry->hash & (count - 1)];
        entry->chain = *bucket;
        *bucket = entry;
    }
    struct service **services = mem_zalloc(count * sizeof(struct service *));
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct service *service = table->services[i], *next; service; service = next) {
            struct service **bucket = &services[service->hash & (count - 1)];
            next = service->chain, service->chain = *bucket, *bucket = service;
        }
    free(table->buckets);
    free(table->services);
    table->buckets = buckets;
    table->services = services;
    table->bucket_count = count;
}

static uint64_t age(uint64_t then_ns, uint64_t now_ns) { return now_ns > then_ns ? now_ns - then_ns : 0; }

static uint64_t interval_of(const struct entry *entry) {
    return entry->interval_ns ? entry->interval_ns : LOAD_INTERVAL_NS;
}

static bool aged_out(const struct entry *entry, uint64_t now_ns) {
    return age(entry->reported_ns, now_ns) > AGE_OUT(interval_of(entry));
}

/* Makes room for one more: among the entries with the oldest changes, one that has aged out gives way. */
static bool make_room(struct load_table *table, uint64_t now_ns) {
    if (table->count < table->most) return true;
    struct entry *oldest = LIST_ENTRY(table->changes.next, struct entry, changed);
    if (aged_out(oldest, now_ns)) {
        drop_entry(table, oldest);
        return true;
    }
    table->refused++;
    return false;
}

/* The entry of an instance, which is made if there is none. */
static int ensure(struct load_table *table, struct load_instance instance, uint64_t now_ns, struct entry **out) {
    size_t node_size = instance.node.size, id_size = instance.service_id.size;
    if (node_size > LOAD_NAME_SIZE || id_size > LOAD_NAME_SIZE || instance.service.size > LOAD_NAME_SIZE)
        return CO_TOOLARGE;
    uint64_t hash = hash_of(instance);
    *out = *find(table, instance, hash);
    if (*out) {
        service_enter(table, *out, instance.service);
        return CO_OK;
    }
    if (!make_room(table, now_ns)) return CO_BUSY;
    if (table->count >= table->bucket_count) grow(table);
    struct entry *entry = mem_zalloc(sizeof *entry + node_size + id_size);
    struct entry **bucket = &table->buckets[hash & (table->bucket_count - 1)];
    *entry = (struct entry){.chain = *bucket, .hash = hash, .hint = load_unknown(), .since_ns = now_ns};
    entry->reported_ns = now_ns;
    entry->keep = keep_new();
    entry->node_size = (uint32_t)node_size, entry->id_size = (uint32_t)id_size;
    if (node_size) memcpy(entry->names, instance.node.data, node_size);
    if (id_size) memcpy(entry->names + node_size, instance.service_id.data, id_size);
    entry->sequence = ++table->sequence;
    list_append(&table->changes, &entry->changed);
    list_init(&entry->of_service);
    *bucket = entry;
    table->count++;
    service_enter(table, entry, instance.service);
    *out = entry;
    return CO_OK;
}

static void changed(struct load_table *table, struct entry *entry) {
    entry->sequence = ++table->sequence;
    list_remove(&entry->changed);
    list_append(&table->changes, &entry->changed);
}

static bool reported(const struct entry *entry) { return !isnan(entry->hint.load); }

/* -- reports and hints -------------------------------------------------------------------------------------------- */
static uint64_t clamp(uint64_t interval_ns) {
    if (interval_ns < LOAD_INTERVAL_MIN_NS) return LOAD_INTERVAL_MIN_NS;
    return interval_ns < LOAD_INTERVAL_MAX_NS ? interval_ns : LOAD_INTERVAL_MAX_NS;
}

/* The first gap between reports is the interval. A longer gap at most doubles it, because a silence is more often a
 * pause than a new interval; a shorter gap lowers it by a quarter of the difference. */
static void learn(struct entry *entry, uint64_t gap_ns) {
    uint64_t before = entry->interval_ns;
    if (!before) entry->interval_ns = gap_ns;
    else if (gap_ns > before) entry->interval_ns = gap_ns < 2 * before ? gap_ns : 2 * before;
    else entry->interval_ns -= (before - gap_ns) / 4;
    entry->interval_ns = clamp(entry->interval_ns);
}

int load_report(struct load_table *table, struct load_instance instance, const struct load_hint *hint,
                uint64_t now_ns) {
    struct entry *entry;
    int rc = load_check(hint, NULL);
    if (rc == CO_OK) rc = ensure(table, instance, now_ns, &entry);
    if (rc != CO_OK) return rc;
    if (reported(entry)) learn(entry, age(entry->reported_ns, now_ns));
    entry->hint = *hint;
    entry->since_hint_ns = entry->since_ns, entry->late_ns = 0;
    entry->reported_ns = now_ns;
    entry->direct = true;
    service_speaks(table, entry, now_ns);
    changed(table, entry);
    return CO_OK;
}

/* Learns from a hint since when the instance is known. The earliest time counts, unless the instance was registered
 * anew between the present hint and this one; then the older hint no longer counts. */
static void known_since(struct entry *entry, uint64_t since_ns, uint64_t reported_ns) {
    bool anew = reported(entry) && since_ns > entry->reported_ns && since_ns <= reported_ns;
    bool over = reported(entry) && reported_ns < entry->since_ns;
    if (anew || (!over && since_ns < entry->since_ns)) entry->since_ns = since_ns;
}

/* An agent only repeats the share that it was told; a server that decides it, or passes on a decision, knows better. A
 * hint that came late by another way does not. */
static void kept_take(struct load_table *table, struct entry *entry, const struct load_entry *from,
                      uint64_t reported_ns, uint64_t now_ns) {
    if (reported(entry) && reported_ns + KEEP_SETTLE_NS < entry->reported_ns) return;
    if (keep_take(&entry->keep, from->kept, now_ns)) changed(table, entry);
}

void load_merge_kept(struct load_table *table, const struct load_entry *from, uint64_t now_ns) {
    struct entry *entry = *find(table, from->instance, hash_of(from->instance));
    if (entry) kept_take(table, entry, from, age(from->age_ns, now_ns), now_ns);
}

int load_merge(struct load_table *table, const struct load_entry *from, uint64_t now_ns) {
    struct entry *entry;
    uint64_t interval_ns = clamp(from->interval_ns), reported_ns = age(from->age_ns, now_ns);
    int rc = load_check(&from->hint, NULL);
    if (rc != CO_OK || from->age_ns > AGE_OUT(interval_ns)) return rc;
    rc = ensure(table, from->instance, now_ns, &entry);
    if (rc != CO_OK) return rc;
    known_since(entry, age(from->known_ns, now_ns), reported_ns);
    if (!from->direct || !reported(entry)) kept_take(table, entry, from, reported_ns, now_ns);
    if (reported(entry) && reported_ns <= entry->reported_ns) {
        /* The instance's agent was connected to another server before, which passed its hints on until then. */
        if (from->direct && !entry->direct) {
            entry->direct = true;
            changed(table, entry);
        }
        return CO_OK;
    }
    entry->hint = from->hint;
    entry->since_hint_ns = age(from->known_ns, now_ns), entry->late_ns = LATE_NS;
    entry->reported_ns = reported_ns;
    entry->interval_ns = interval_ns;
    entry->direct = from->direct;
    service_speaks(table, entry, now_ns);
    changed(table, entry);
    return CO_OK;
}

int load_started(struct load_table *table, struct load_instance instance, uint64_t then_ns) {
    struct entry *entry;
    int rc = ensure(table, instance, then_ns, &entry);
    if (rc == CO_OK && then_ns < entry->since_ns) entry->since_ns = then_ns;
    return rc;
}

/* Has the instance itself said something since it was registered anew? Its hint came here before the catalog told of that.
 * `before_ns`: when the one before was there. */
static bool speaks_already(const struct entry *entry, uint64_t before_ns) {
    return reported(entry) && entry->since_hint_ns > before_ns + entry->late_ns;
}

int load_created(struct load_table *table, struct load_instance instance, uint64_t created, uint64_t before_ns,
                 uint64_t now_ns) {
    struct entry *entry;
    int rc = ensure(table, instance, now_ns, &entry);
    if (rc != CO_OK || created <= entry->created) return rc;
    if (entry->created_ns > before_ns) before_ns = entry->created_ns;
    if (before_ns && speaks_already(entry, before_ns)) {
        entry->since_ns = entry->since_hint_ns;
    } else if (before_ns) {
        entry->since_ns = entry->reported_ns = now_ns;
        entry->hint = load_unknown(), entry->interval_ns = 0;
        entry->keep = keep_new();
        changed(table, entry);
    }
    entry->created = created, entry->created_ns = now_ns;
    return CO_OK;
}

void load_forget(struct load_table *table, struct load_instance instance) {
    struct entry **at = find(table, instance, hash_of(instance));
    if (*at) drop(table, at);
}

/* -- shares of keys ----------------------------------------------------------------------------------------------- */
static double greatest_share(const struct service *service) {
    double most = 0;
    LIST_FOREACH(at, (struct list *)(uintptr_t)&service->entries)
        most = fmax(most, LIST_ENTRY(at, const struct entry, of_service)->keep.share);
    return most;
}

/* Only ratios count: when no instance keeps all its keys, all shares grow alike. A process that does not decide for all
 * instances of the service leaves the shares, because another process may do the same. */
static void scale(struct load_table *table, struct service *service) {
    double most = greatest_share(service);
    bool decides = true;
    LIST_FOREACH(at, &service->entries) decides &= LIST_ENTRY(at, struct entry, of_service)->direct;
    if (most == 1 || !decides) return;
    LIST_FOREACH(at, &service->entries) {
        struct entry *entry = LIST_ENTRY(at, struct entry, of_service);
        keep_scale(&entry->keep, 1 / most);
        changed(table, entry);
    }
}

static bool counts(const struct entry *entry, uint64_t now_ns) { return reported(entry) && !aged_out(entry, now_ns); }

/* The more requests of an instance fail, the less its load counts in the mean; load and errors are of the same
 * reports. */
static void decide(struct load_table *table, struct service *service, uint64_t now_ns) {
    struct figure loads = {0};
    LIST_FOREACH(at, &service->entries) {
        const struct entry *entry = LIST_ENTRY(at, struct entry, of_service);
        if (counts(entry, now_ns)) figure_add(&loads, &(struct figure_said){entry->keep.load, 1, entry->keep.errors});
    }
    struct keep_others others = {figure_mean(&loads), greatest_share(service), loads.known != service->counted};
    bool any = false;
    service->counted = loads.known;
    LIST_FOREACH(at, &service->entries) {
        struct entry *entry = LIST_ENTRY(at, struct entry, of_service);
        if (!entry->direct || !counts(entry, now_ns) || !keep_decide(&entry->keep, &others, now_ns)) continue;
        changed(table, entry);
        any = true;
    }
    if (any) scale(table, service);
}

void load_decide(struct load_table *table, uint64_t now_ns) {
    LIST_FOREACH_SAFE(at, next, &table->heard) {
        list_remove(at);
        decide(table, LIST_ENTRY(at, struct service, heard), now_ns);
    }
}

/* -- queries ------------------------------------------------------------------------------------------------------ */
static struct load_entry view(const struct entry *entry, uint64_t now_ns) {
    struct load_entry seen = {.instance = instance_of(entry),
                              .hint = load_unknown(),
                              .age_ns = age(entry->reported_ns, now_ns),
                              .interval_ns = interval_of(entry),
                              .known_ns = age(entry->since_ns, now_ns),
                              .kept = entry->keep.share,
                              .direct = entry->direct};
    if (!aged_out(entry, now_ns)) seen.hint = entry->hint;
    return seen;
}

bool load_get(const struct load_table *table, struct load_instance instance, uint64_t now_ns,
              struct load_entry *entry) {
    const struct entry *found = *find(table, instance, hash_of(instance));
    if (found) *entry = view(found, now_ns);
    return found;
}

double load_share(uint64_t known_ns, uint64_t slow_start_ns) {
    if (known_ns >= slow_start_ns) return 1;
    double share = (double)known_ns / (double)slow_start_ns;
    return share > 0.01 ? share : 0.01;
}

uint64_t load_sequence(const struct load_table *table) { return table->sequence; }

uint64_t load_changes(const struct load_table *table, uint64_t since, enum load_which which, size_t most,
                      uint64_t now_ns, void (*each)(void *data, const struct load_entry *entry), void *data) {
    const struct list *at = table->changes.prev; /* backwards to the last change that the caller knows, then forwards */
    while (at != &table->changes && LIST_ENTRY(at, const struct entry, changed)->sequence > since) at = at->prev;
    for (at = at->next; at != &table->changes; at = at->next) {
        const struct entry *entry = LIST_ENTRY(at, const struct entry, changed);
        bool wanted = reported(entry) && (which == LOAD_ALL || entry->direct) && !aged_out(entry, now_ns);
        if (wanted && most-- == 0) return since;
        since = entry->sequence;
        if (!wanted) continue;
        struct load_entry seen = view(entry, now_ns);
        each(data, &seen);
    }
    return table->sequence;
}

void load_of_service(const struct load_table *table, struct slice service, size_t most, uint64_t now_ns,
                     void (*each)(void *data, const struct load_entry *entry), void *data) {
    const struct service *found = *service_find(table, service, service_hash(service));
    if (!found) return;
    LIST_FOREACH(at, (struct list *)(uintptr_t)&found->entries) {
        struct load_entry seen = view(LIST_ENTRY(at, const struct entry, of_service), now_ns);
        if (isnan(seen.hint.load)) continue;
        if (most-- == 0) return;
        each(data, &seen);
    }
}

bool load_service_known(const struct load_table *table, struct slice service) {
    const struct service *found = *service_find(table, service, service_hash(service));
    return found && found->known;
}

uint64_t load_services_begun(const struct load_table *table) { return table->begun; }

/* -- life --------------------------------------------------------------------------------------------------------- */
struct load_table *load_table_new(size_t most) {
    struct load_table *table = mem_zalloc(sizeof *table);
    table->most = most ? most : LOAD_INSTANCES_MOST;
    table->bucket_count = BUCKETS_MIN;
    table->buckets = mem_zalloc(BUCKETS_MIN * sizeof(struct entry *));
    table->services = mem_zalloc(BUCKETS_MIN * sizeof(struct service *));
    list_init(&table->changes);
    list_init(&table->heard);
    return table;
}

void load_table_free(struct load_table *table) {
    if (!table) return;
    LIST_FOREACH_SAFE(at, next, &table->changes) drop_entry(table, LIST_ENTRY(at, struct entry, changed));
    free(table->buckets);
    free(table->services);
    free(table);
}

void load_tick(struct load_table *table, uint64_t now_ns) {
    LIST_FOREACH_SAFE(at, next, &table->changes) {
        struct entry *entry = LIST_ENTRY(at, struct entry, changed);
        if (age(entry->reported_ns, now_ns) <= KEEP_NS) break; /* the following ones changed later */
        drop_entry(table, entry);
    }
}

size_t load_count(const struct load_table *table) { return table->count; }
uint64_t load_refused(const struct load_table *table) { return table->refused; }
