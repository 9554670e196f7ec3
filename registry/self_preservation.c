/* Self-preservation: counts losses for each service.
 *
 * ROW_LOST has every instance whose node is dead. ROW_RECENT has the losses in the window, one record per node, oldest
 * first, so that those that leave the window are at its beginning. ROW_TALLY has the sums of both. Losses that have
 * left the window are removed when the next loss of that service comes, because nothing else reads the window. When
 * self-preservation acts, it moves the window into ROW_HELD. */
#include "registry/self_preservation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/message.h"
#include "base/metrics.h"
#include "registry/catalog_turns.h"

#define COUNT_BYTES 8

/* The first byte of keys in TABLE_PRESERVATION. */
enum preservation_row {
    ROW_HELD = 'h',   /* service -> HeldService */
    ROW_LOST = 'l',   /* service, node, service id: an instance on a dead node -> when it was lost; 0: no loss */
    ROW_RECENT = 'r', /* service, when, node -> how many instances */
    ROW_STATE = 's',  /* -> PreservationState */
    ROW_TALLY = 't',  /* service -> PreservationTally */
};

#define STATE_HELD_FIELD 4
static const struct slice state_key = SLICE_LITERAL("s");

static struct slice service_key(enum preservation_row row, struct slice service, char *room) {
    room[0] = (char)row;
    return slice_make(room, 1 + key_name(room + 1, service).size);
}

static struct slice lost_key(struct slice instance, char *room) {
    room[0] = ROW_LOST;
    memcpy(room + 1, instance.data, instance.size);
    return slice_make(room, 1 + instance.size);
}

/* -- records ------------------------------------------------------------------------------------------------------ */

static void *record(struct store_txn *txn, struct slice key, const ProtobufCMessageDescriptor *type,
                    struct arena *arena, int *error) {
    struct slice bytes;
    *error = store_get(txn, TABLE_PRESERVATION, key, &bytes);
    if (*error) return NULL;
    void *message = message_unpack(arena, type, bytes);
    if (!message) *error = CO_CORRUPT;
    return message;
}

/* The same, for changing it: a new record if there is none. */
static void *record_of(struct machine_tx *tx, struct slice key, const ProtobufCMessageDescriptor *type) {
    int error;
    void *message = record(tx->store, key, type, tx->arena, &error);
    if (message) return message;
    if (error != CO_NOTFOUND) store_fail(tx->store, error);
    message = arena_alloc(tx->arena, type->sizeof_message);
    protobuf_c_message_init(type, message);
    return message;
}

static uint64_t number_at(struct store_txn *txn, struct slice key, bool *found) {
    struct slice value;
    *found = store_get(txn, TABLE_PRESERVATION, key, &value) == CO_OK && value.size == COUNT_BYTES;
    return *found ? get_be64(value.data) : 0;
}

static void number_put(struct machine_tx *tx, struct slice key, uint64_t number) {
    char bytes[COUNT_BYTES];
    put_be64(bytes, number);
    store_put(tx->store, TABLE_PRESERVATION, key, slice_make(bytes, sizeof bytes));
}

static Pb__PreservationTally *tally_of(struct machine_tx *tx, struct slice service) {
    char room[STORE_KEY_MAX];
    return record_of(tx, service_key(ROW_TALLY, service, room), &pb__preservation_tally__descriptor);
}

static void tally_put(struct machine_tx *tx, struct slice service, const Pb__PreservationTally *tally) {
    char room[STORE_KEY_MAX];
    struct slice key = service_key(ROW_TALLY, service, room);
    if (tally->lost || tally->recent)
        store_put(tx->store, TABLE_PRESERVATION, key, message_pack(tx->arena, &tally->base));
    else (void)store_del(tx->store, TABLE_PRESERVATION, key);
}

int preservation_held(struct store_txn *txn, struct slice service, struct arena *arena, Pb__HeldService **held) {
    char room[STORE_KEY_MAX];
    int error;
    *held = record(txn, service_key(ROW_HELD, service, room), &pb__held_service__descriptor, arena, &error);
    return error == CO_NOTFOUND ? CO_OK : error;
}

static Pb__HeldService *held_of(struct machine_tx *tx, struct slice service) {
    Pb__HeldService *held;
    int error = preservation_held(tx->store, service, tx->arena, &held);
    if (error) store_fail(tx->store, error);
    return held;
}

static void held_put(struct machine_tx *tx, const Pb__HeldService *held) {
    char room[STORE_KEY_MAX];
    store_put(tx->store, TABLE_PRESERVATION, service_key(ROW_HELD, slice_text(held->service), room),
              message_pack(tx->arena, &held->base));
}

static bool held_covers(const Pb__HeldService *held, uint64_t at_ms) { return at_ms != 0 && at_ms >= held->since_ms; }

bool preservation_holds(struct store_txn *txn, const Pb__HeldService *held, struct slice instance) {
    bool found;
    char room[STORE_KEY_MAX];
    if (instance.size >= sizeof room) return false; /* too long a key: its loss was not noted */
    uint64_t at_ms = number_at(txn, lost_key(instance, room), &found);
    return found && held_covers(held, at_ms);
}

static Pb__PreservationState *state_of(struct machine_tx *tx) {
    return record_of(tx, state_key, &pb__preservation_state__descriptor);
}

static void state_put(struct machine_tx *tx, const Pb__PreservationState *state) {
    store_put(tx->store, TABLE_PRESERVATION, state_key, message_pack(tx->arena, &state->base));
}

uint64_t preservation_count(struct store_txn *txn) {
    struct slice bytes;
    return store_get(txn, TABLE_PRESERVATION, state_key, &bytes) == CO_OK ? record_number(bytes, STATE_HELD_FIELD) : 0;
}

/* -- the window --------------------------------------------------------------------------------------------------- */

#define MOMENT_DIGITS 16 /* keys in order of time */
_Static_assert(MOMENT_DIGITS == 2 * sizeof(uint64_t), "as many as a moment has");
_Static_assert(1 + 3 * (STORE_PART_MAX + 2) <= STORE_KEY_MAX, "three parts behind the row's byte");

static struct slice recent_key(char *room, struct slice service, uint64_t at_ms, struct slice node) {
    char digits[MOMENT_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016" PRIx64, at_ms);
    room[0] = ROW_RECENT;
    const struct slice parts[] = {service, slice_make(digits, MOMENT_DIGITS), node};
    return slice_make(room, 1 + fold_key(room + 1, ARRAY_COUNT(parts), parts).size);
}

/* The moment in a key. `prefix_size`: the size of the row's byte and the service. */
static uint64_t recent_moment(struct slice key, size_t prefix_size) {
    char digits[MOMENT_DIGITS + 1] = "";
    if (key.size >= prefix_size + MOMENT_DIGITS) memcpy(digits, key.data + prefix_size, MOMENT_DIGITS);
    return strtoull(digits, NULL, 16);
}

/* Removes the losses before `from_ms`. Returns the moment of the oldest that is left; UINT64_MAX: none. */
static uint64_t recent_trim(struct machine_tx *tx, struct slice service, Pb__PreservationTally *tally,
                            uint64_t from_ms) {
    char room[STORE_KEY_MAX];
    struct slice prefix = service_key(ROW_RECENT, service, room);
    struct store_cursor cursor;
    uint64_t oldest = UINT64_MAX;
    store_cursor_open(&cursor, tx->store, TABLE_PRESERVATION, prefix);
    while (cursor.valid && slice_starts(cursor.key, prefix)) {
        uint64_t at_ms = recent_moment(cursor.key, prefix.size);
        if (at_ms >= from_ms) {
            oldest = at_ms;
            break;
        }
        tally->recent -= get_be64(cursor.value.data);
        tally->recent_nodes--;
        store_cursor_del(&cursor);
    }
    store_cursor_close(&cursor);
    return oldest;
}

/* -- releasing ---------------------------------------------------------------------------------------------------- */

static void release(struct change *change, const Pb__HeldService *held) {
    struct slice service = slice_text(held->service);
    char room[STORE_KEY_MAX];
    turn_service(change->tx, service);
    (void)store_del(change->tx->store, TABLE_PRESERVATION, service_key(ROW_HELD, service, room));
    Pb__PreservationState *state = state_of(change->tx);
    if (state->held) state->held--;
    state->now_ms++; /* so that losses from now on are later than all that were held */
    state_put(change->tx, state);
    change_mark_service(change, service);
    change_event(change, MACHINE_PRESERVATION_RELEASED, slice_make("", 0), service);
}

int preservation_release_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__PreservationReleaseCommand *command = request;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    const Pb__HeldService *held = held_of(tx, slice_text(command->service));
    result->yes = held && held->index == command->index;
    if (!result->yes) return CO_OK; /* it is over, or held anew */
    struct change change = {.tx = tx};
    release(&change, held);
    change_tell(&change);
    return CO_OK;
}

/* Removes the record of a lost instance that is back or gone. */
static void forget(struct change *change, struct slice service, struct slice node, struct slice id) {
    struct machine_tx *tx = change->tx;
    char room[STORE_KEY_MAX], instance[STORE_KEY_MAX];
    bool lost, recent;
    struct slice key = lost_key(key_instance(instance, service, node, id), room);
    uint64_t at_ms = number_at(tx->store, key, &lost);
    if (!lost) return;
    turn_instance(tx, service, node, id);
    (void)store_del(tx->store, TABLE_PRESERVATION, key);
    Pb__PreservationTally *tally = tally_of(tx, service);
    if (tally->lost) tally->lost--;
    key = recent_key(room, service, at_ms, node);
    uint64_t count = number_at(tx->store, key, &recent);
    if (recent && count > 1) number_put(tx, key, count - 1);
    if (recent && count <= 1) (void)store_del(tx->store, TABLE_PRESERVATION, key), tally->recent_nodes--;
    if (recent) tally->recent--;
    tally_put(tx, service, tally);
    Pb__HeldService *held = held_of(tx, service);
    if (!held || !held_covers(held, at_ms)) return;
    if (--held->instances == 0) release(change, held);
    else held_put(tx, held);
}

void preservation_instance_gone(struct change *change, const Pb__Service *service) {
    forget(change, slice_text(service->name), slice_text(service->node), slice_text(service->id));
}

/* -- the instances on a node -------------------------------------------------------------------------------------- */

struct placed {
    struct slice service, id;
};

static int compare_placed(const void *a, const void *b) {
    const struct placed *one = a, *other = b;
    int order = slice_compare_nocase(one->service, other->service);
    return order ? order : slice_compare(one->service, other->service);
}

/* The node's instances, those of one service side by side. */
static struct placed *placed_on(struct machine_tx *tx, struct slice node, size_t *count) {
    char room[STORE_KEY_MAX];
    struct slice prefix = key_node(room, node);
    struct pointers found = {0};
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, tx->store, TABLE_SERVICES, prefix) {
        struct placed *item = arena_alloc(tx->arena, sizeof *item);
        item->service = slice_copy(tx->arena, record_text(cursor.value, SERVICE_NAME_FIELD));
        item->id = slice_copy(tx->arena, record_text(cursor.value, SERVICE_ID_FIELD));
        pointers_add(&found, tx->arena, item);
    }
    store_cursor_close(&cursor);
    struct placed *placed = arena_alloc(tx->arena, (found.count + 1) * sizeof *placed);
    for (size_t i = 0; i < found.count; i++) placed[i] = *(const struct placed *)found.items[i];
    if (found.count > 1) qsort(placed, found.count, sizeof *placed, compare_placed);
    *count = found.count;
    return placed;
}

void preservation_node_back(struct machine_tx *tx, struct slice node) {
    if (store_count(tx->store, TABLE_PRESERVATION) == 0) return;
    struct change change = {.tx = tx};
    size_t count;
    const struct placed *placed = placed_on(tx, node, &count);
    for (size_t i = 0; i < count; i++) forget(&change, placed[i].service, node, placed[i].id);
    change_tell(&change);
}

/* -- losing ------------------------------------------------------------------------------------------------------- */

/* The time from the last end that another leader decided to this end of a lease, to which this leader had granted a
 * full period. */
static uint64_t passed_between(const Pb__PreservationState *last, const Pb__PreservationOrder *order,
                               int64_t lease_ms) {
    if (last->unix_ms <= 0 || order->unix_ms <= last->unix_ms) return 0;
    int64_t passed_ms = order->unix_ms - last->unix_ms;
    if (passed_ms > PRESERVATION_HOLD_MS_MAX) passed_ms = PRESERVATION_HOLD_MS_MAX;
    return passed_ms > lease_ms ? (uint64_t)(passed_ms - lease_ms) : 0;
}

/* Advances the state machine's clock, which begins at 1, and returns the time. */
static uint64_t clock_read(struct machine_tx *tx, const Pb__PreservationOrder *order, int64_t lease_ms) {
    Pb__PreservationState *now = state_of(tx);
    bool same = now->term == tx->term, later = order->at_ms > now->at_ms;
    if (now->now_ms == 0) now->now_ms = 1;
    if (!same) now->now_ms += passed_between(now, order, lease_ms);
    else if (later) now->now_ms += order->at_ms - now->at_ms;
    if (!same || later) now->at_ms = order->at_ms, now->unix_ms = order->unix_ms;
    now->term = tx->term;
    state_put(tx, now);
    return now->now_ms;
}

static bool preservation_acts(struct machine_tx *tx, struct slice service, const Pb__PreservationTally *tally,
                              const Pb__PreservationOrder *order) {
    if (tally->recent < order->instances || tally->recent_nodes < order->nodes) return false;
    uint64_t all = catalog_service_instances(tx->store, service), dead = tally->lost - tally->recent;
    return all >= dead && tally->recent * 100 >= (all - dead) * order->percent;
}

/* Holds the instances of the window. */
static void hold(struct machine_tx *tx, struct slice service, Pb__PreservationTally *tally, uint64_t since_ms,
                 const Pb__PreservationOrder *order) {
    Pb__HeldService held = PB__HELD_SERVICE__INIT;
    turn_service(tx, service);
    held.service = (char *)(uintptr_t)service.data;
    held.since_ms = since_ms, held.index = tx->index, held.instances = tally->recent;
    held.hold_ms = order->hold_ms < PRESERVATION_HOLD_MS_MAX ? order->hold_ms : PRESERVATION_HOLD_MS_MAX;
    int64_t unix_ms =
        order->unix_ms < INT64_MAX - PRESERVATION_HOLD_MS_MAX ? order->unix_ms : INT64_MAX - PRESERVATION_HOLD_MS_MAX;
    held.until_unix_ms = unix_ms + (int64_t)held.hold_ms;
    held_put(tx, &held);
    Pb__PreservationState *state = state_of(tx);
    state->held++;
    state_put(tx, state);
    (void)recent_trim(tx, service, tally, UINT64_MAX);
    machine_changed(tx, SPACE_SERVICE, service, false);
    expiry_began_in(tx, &held_service_expiry, service, tx->index, (int64_t)held.hold_ms * 1000000);
}

/* `count` instances of the service were on the node. */
static void service_lost(struct machine_tx *tx, struct slice service, struct slice node, uint64_t count, uint64_t at_ms,
                         const Pb__PreservationOrder *order) {
    char room[STORE_KEY_MAX];
    CHECK(count > 0);
    Pb__PreservationTally *tally = tally_of(tx, service);
    Pb__HeldService *held = order ? held_of(tx, service) : NULL;
    tally->lost += count;
    if (held) {
        held->instances += count;
        held_put(tx, held);
    } else if (order) {
        number_put(tx, recent_key(room, service, at_ms, node), count);
        tally->recent += count, tally->recent_nodes++;
        uint64_t since_ms = recent_trim(tx, service, tally, at_ms > order->window_ms ? at_ms - order->window_ms : 0);
        if (preservation_acts(tx, service, tally, order)) hold(tx, service, tally, since_ms, order);
    }
    tally_put(tx, service, tally);
}

void preservation_node_lost(struct machine_tx *tx, struct slice node, const Pb__PreservationOrder *order,
                            int64_t lease_ms) {
    if (order && order->hold_ms == 0) order = NULL;
    preservation_node_back(tx, node); /* the node may have died before, with another agent */
    uint64_t at_ms = order ? clock_read(tx, order, lease_ms) : 0;
    size_t count;
    const struct placed *placed = placed_on(tx, node, &count);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && slice_equal_nocase(placed[end].service, placed[first].service); end++) {
            char room[STORE_KEY_MAX], instance[STORE_KEY_MAX];
            number_put(tx, lost_key(key_instance(instance, placed[end].service, node, placed[end].id), room), at_ms);
        }
        service_lost(tx, placed[first].service, node, end - first, at_ms, order);
    }
}

/* -- its end, as the leader counts it ----------------------------------------------------------------------------- */

static int held_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    int64_t unix_ms = leader->unix_ms;
    struct arena arena = {0};
    struct store_cursor cursor;
    int rv = CO_OK;
    struct slice rows = slice_make("h", 1);
    STORE_PREFIX(&cursor, txn, TABLE_PRESERVATION, rows) {
        int error;
        const Pb__HeldService *held = record(txn, cursor.key, &pb__held_service__descriptor, &arena, &error);
        if (held) {
            int64_t left_ms = held->until_unix_ms > unix_ms ? held->until_unix_ms - unix_ms : 0;
            if ((uint64_t)left_ms > held->hold_ms) left_ms = (int64_t)held->hold_ms;
            expiry_began(expiry, &held_service_expiry, slice_text(held->service), held->index, left_ms * 1000000,
                         leader->now_ms);
        } else {
            rv = CO_CORRUPT;
        }
        arena_reset(&arena);
    }
    store_cursor_close(&cursor);
    arena_free(&arena);
    return rv;
}

static void held_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                             void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                             void *data) {
    Pb__PreservationReleaseCommand command = PB__PRESERVATION_RELEASE_COMMAND__INIT;
    char *service = mem_strndup(due->name.data, due->name.size);
    command.service = service, command.index = due->index, command.term = leader->term;
    propose(data, PRESERVATION_RELEASE, &command.base);
    free(service);
}

METRIC held_metric = {.name = "coord_self_preservation_held_services",
                      .type = METRIC_GAUGE,
                      .help = "Services whose lost instances are held in answers"};
METRIC held_total = {.name = "coord_self_preservation_held_total",
                     .type = METRIC_COUNTER,
                     .help = "How often a service's lost instances were held in answers"};

static void held_updated(const struct expiry_update *update) {
    if (update->ended) {
        log_info("self-preservation", "released service=\"%s\"", update->name);
        return;
    }
    log_warn("self-preservation",
             "held service=\"%s\" for=%.1fs: most of it was lost at once, with the leases of its nodes", update->name,
             (double)update->period_ns / 1e9);
    metric_add(&held_total, 1);
}

const struct expiry_kind held_service_expiry = {.number = 4,
                                                .name = "held service",
                                                .no_second_period = true,
                                                .quiet = true,
                                                .read = held_read,
                                                .end = held_propose_end,
                                                .updated = held_updated};

const struct module_gauge preservation_gauges[] = {{&held_metric, preservation_count}, {0}};

struct metric *const preservation_metrics[] = {&held_total, NULL};
