/* coord rtt */
#include <stdlib.h>

#include "agent/cmd.h"
#include "base/json_in.h"
#include "lb/coordinate.h"

#define NODES 2

/* The coordinates of one of the two nodes. */
struct place {
    const char *name; /* as given */
    Pb__Coordinate **records;
    size_t count;
};

static int mistaken(const char *line) {
    fprintf(stderr, "%s\n", line);
    return CMD_EXIT_MISTAKE;
}

/* -- reading the API's answer ------------------------------------------------------------------------------------- */
static bool number_of(struct json_object *object, const char *name, double *out) {
    struct json_object *value = json_get(object, name);
    if (!value) return false;
    *out = json_object_get_double(value);
    return true;
}

/* NULL: not a coordinate of this kind. */
static Pb__Coordinate *record_of(struct arena *arena, struct json_object *entry) {
    struct json_object *coord = json_get(entry, "Coord"), *vec = json_get(coord, "Vec");
    const char *segment = "";
    json_get_string(entry, "Segment", &segment, NULL);
    if (!json_object_is_type(vec, json_type_array) || json_object_array_length(vec) != VIVALDI_DIMENSIONS) return NULL;
    struct vivaldi_coordinate *numbers = arena_zalloc(arena, sizeof *numbers);
    for (size_t i = 0; i < VIVALDI_DIMENSIONS; i++)
        numbers->vec[i] = json_object_get_double(json_object_array_get_idx(vec, i));
    bool whole = number_of(coord, "Error", &numbers->error) && number_of(coord, "Adjustment", &numbers->adjustment) &&
                 number_of(coord, "Height", &numbers->height);
    Pb__Coordinate *record = arena_alloc(arena, sizeof *record);
    *record = coordinate_record("-", arena_strndup(arena, segment, strlen(segment)), numbers);
    return whole && coordinate_check(record) == CO_OK ? record : NULL;
}

static void place_add(struct arena *arena, struct place *place, Pb__Coordinate *record) {
    Pb__Coordinate **wider = arena_alloc(arena, (place->count + 1) * sizeof *wider);
    if (place->count) memcpy(wider, place->records, place->count * sizeof *wider);
    wider[place->count++] = record;
    place->records = wider;
}

/* Takes the entries of a list that are about one of the two nodes. `datacenter`: names end with it (-wan); NULL:
 * without it. */
static int take_entries(struct arena *arena, struct json_object *list, const char *datacenter, struct place *places,
                        struct fault *fault) {
    for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++) {
        struct json_object *entry = json_object_array_get_idx(list, i);
        const char *node = "";
        json_get_string(entry, "Node", &node, fault);
        const char *name = datacenter ? arena_printf(arena, "%s.%s", node, datacenter) : node;
        for (size_t k = 0; k < NODES; k++) {
            if (!slice_equal_nocase(slice_text(places[k].name), slice_text(name))) continue;
            Pb__Coordinate *record = record_of(arena, entry);
            if (!record) return fault_set(fault, CO_INVALID, "node \"%s\" has a coordinate that is none", node);
            place_add(arena, &places[k], record);
        }
    }
    return fault->code;
}

static int take_areas(struct arena *arena, struct json_object *areas, struct place *places, struct fault *fault) {
    for (size_t i = 0; i < json_object_array_length(areas); i++) {
        struct json_object *area = json_object_array_get_idx(areas, i);
        const char *datacenter = "";
        json_get_string(area, "Datacenter", &datacenter, fault);
        int rv = take_entries(arena, json_get(area, "Coordinates"), datacenter, places, fault);
        if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

static int get_json(const struct client *client, const char *path, json_type type, struct json_object **json,
                    struct fault *fault) {
    struct client_answer answer;
    int rv = client_want(client, "GET", path, NULL, false, &answer, fault);
    *json = rv == CO_OK ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    client_answer_free(&answer);
    if (*json && !json_object_is_type(*json, type)) {
        json_object_put(*json);
        *json = NULL;
    }
    return *json ? CO_OK : fault_set(fault, CO_INVALID, "%s: not what was expected", path);
}

/* -- the command -------------------------------------------------------------------------------------------------- */
/* The agent's own name (with its datacenter, for -wan), in the arena. */
static int own_name(const struct client *client, struct arena *arena, bool wan, const char **name,
                    struct fault *fault) {
    struct json_object *self;
    const char *node = "", *datacenter = "";
    int rv = get_json(client, "/v1/agent/self", json_type_object, &self, fault);
    if (rv != CO_OK) return rv;
    json_get_string(json_get(self, "Config"), "NodeName", &node, fault);
    json_get_string(json_get(self, "Config"), "Datacenter", &datacenter, fault);
    *name = wan ? arena_printf(arena, "%s.%s", node, datacenter) : arena_strndup(arena, node, strlen(node));
    json_object_put(self);
    return fault->code;
}

static int estimate(const struct place *places, bool wan) {
    const Pb__Coordinate *from, *to;
    coordinate_meet(places[0].records, places[0].count, places[1].records, places[1].count, &from, &to);
    if (!from || !to) {
        fprintf(stderr, "Could not find a coordinate for node \"%s\"\n", places[from ? 1 : 0].name);
        return 1;
    }
    struct vivaldi_coordinate here = coordinate_read(from), there = coordinate_read(to);
    double seconds = vivaldi_distance(&here, &there);
    printf("Estimated %s <-> %s rtt: %.3f ms (using %s coordinates)\n", places[0].name, places[1].name, seconds * 1000,
           wan ? "WAN" : "LAN");
    return 0;
}

static int ask(const struct client *client, struct arena *arena, struct place *places, bool wan) {
    struct json_object *json;
    struct fault fault = {0};
    int rv =
        get_json(client, wan ? "/v1/coordinate/datacenters" : "/v1/coordinate/nodes", json_type_array, &json, &fault);
    if (rv != CO_OK) return cmd_failed("getting coordinates", &fault);
    rv = wan ? take_areas(arena, json, places, &fault) : take_entries(arena, json, NULL, places, &fault);
    json_object_put(json);
    return rv == CO_OK ? estimate(places, wan) : cmd_failed("getting coordinates", &fault);
}

static int run(const struct client *client, struct arena *arena, char **names, bool wan) {
    struct place places[NODES] = {{.name = names[0]}, {.name = names[1]}};
    if (!places[1].name) {
        struct fault fault = {0};
        if (own_name(client, arena, wan, &places[1].name, &fault) != CO_OK)
            return cmd_failed("looking up the agent's own name", &fault);
    }
    for (size_t k = 0; wan && k < NODES; k++)
        if (!strchr(places[k].name, '.'))
            return mistaken("Node names must be specified as <node name>.<datacenter> with -wan");
    return ask(client, arena, places, wan);
}

int cmd_rtt(int argc, char **argv) {
    static const char usage[] = "coord rtt [FLAGS] NODE1 [NODE2]";
    struct client client = {0};
    bool wan = false;
    const struct cmd_flag flags[] = {
        {"wan", CMD_BOOL, &wan, "between servers, named NODE.DATACENTER, of any datacenter"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, 1, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || (rest[1] && rest[2]))
        return mistaken("One or two node names must be specified\n\nUsage: coord rtt [FLAGS] NODE1 [NODE2]");
    struct arena arena = {0};
    code = run(&client, &arena, rest, wan);
    arena_free(&arena);
    return code;
}
