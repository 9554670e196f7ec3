/* coord rollout stage -regions: a version goes to several regions. First its document is published in each; when that
 * has worked in all of them, each region's pointer is changed, in the order that was given. Steps that are done already
 * are skipped, so the command can be run again after any failure. */
#include <stdlib.h>

#include "agent/cmd_rollout.h"
#include "base/check.h"
#include "base/memory.h"

#define REGIONS_MOST 64

struct spread {
    const char *name, *version;
    const struct buffer *body;
    bool part;
    /* The state in the region where the command is run. */
    struct rollout_known home;
    struct buffer document, current, schema; /* current: the version that the other callers keep; schema: empty: none */
    struct target {
        struct client client; /* that region's */
        struct rollout_known known;
        struct fault fault;
    } targets[REGIONS_MOST];
    size_t count;
};

/* Reads the answer's body into `out`, which stays empty after a 404. */
static int read_text(const struct client *client, const struct buffer *path, struct buffer *out, struct fault *fault) {
    struct client_answer answer = {0};
    int rv = client_want(client, "GET", path->data, NULL, true, &answer, fault);
    if (rv == CO_OK && answer.status == 200) buffer_append(out, answer.body.data, answer.body.size);
    client_answer_free(&answer);
    return fault->code;
}

static int read_document(const struct client *client, const struct spread *spread, const char *version,
                         struct buffer *out, struct fault *fault) {
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/kv/config/");
    client_encode(&path, spread->name, false);
    buffer_append_byte(&path, '/');
    client_encode(&path, version, false);
    client_parameter(&path, "raw", NULL);
    buffer_append_byte(&path, '\0');
    int rv = read_text(client, &path, out, fault);
    buffer_free(&path);
    if (rv == CO_OK && !out->size)
        fault_set(fault, CO_NOTFOUND, "rollout \"%s\" has no version \"%s\" here: `coord rollout put` adds it",
                  spread->name, version);
    return fault->code;
}

static int read_home(const struct client *client, struct spread *spread, struct fault *fault) {
    struct buffer path = {0};
    if (read_document(client, spread, spread->version, &spread->document, fault) ||
        rollout_known_read(client, spread->name, &spread->home, fault))
        return fault->code;
    const char *current = spread->home.current;
    if (current[0] && read_document(client, spread, current, &spread->current, fault)) return fault->code;
    rollout_path(&path, spread->name, "/schema");
    buffer_append_byte(&path, '\0');
    (void)read_text(client, &path, &spread->schema, fault);
    buffer_free(&path);
    return fault->code;
}

/* Splits "eu,us" in place. */
static int take_regions(const struct client *client, char *regions, struct spread *spread, struct fault *fault) {
    for (char *rest = regions, *region; (region = strsep(&rest, ","));) {
        if (!region[0]) return fault_set(fault, CO_INVALID, "-regions: names with commas between them are wanted");
        if (spread->count == REGIONS_MOST) return fault_set(fault, CO_TOOLARGE, "-regions: at most 64");
        struct target *target = &spread->targets[spread->count++];
        *target = (struct target){.client = *client};
        target->client.datacenter = region;
    }
    return CO_OK;
}

static bool is_done(const struct spread *spread, const struct target *target) {
    const struct rollout_known *known = &target->known;
    bool current = strcmp(known->current, spread->version) == 0;
    return current ? !known->staged[0] : spread->part && strcmp(known->staged, spread->version) == 0;
}

/* Is there no version yet that the other callers could keep? */
static bool begins(const struct spread *spread, const struct target *target) {
    return spread->part && !target->known.current[0] && spread->home.current[0];
}

static void prepare(struct spread *spread, struct target *target) {
    struct fault *fault = &target->fault;
    if (rollout_known_read(&target->client, spread->name, &target->known, fault)) return;
    if (target->known.there && spread->schema.size &&
        rollout_send(&target->client, spread->name, "/schema", &spread->schema, fault))
        return;
    if (begins(spread, target) &&
        rollout_send_version(&target->client, spread->name, spread->home.current, &spread->current, fault))
        return;
    (void)rollout_send_version(&target->client, spread->name, spread->version, &spread->document, fault);
}

/* Stages the version in one region. A rollout that is new there first gets a version for the other callers, and its
 * schema. */
static void stage(struct spread *spread, struct target *target) {
    struct fault *fault = &target->fault;
    struct rollout_known *known = &target->known;
    bool is_new = !known->there;
    if (rollout_known_read(&target->client, spread->name, known, fault)) return; /* publishing has moved its index */
    if (begins(spread, target) &&
        rollout_send_current(&target->client, spread->name, spread->home.current, NULL, known->modify_index, fault))
        return;
    if (rollout_send(&target->client, spread->name, "/current", spread->body, fault)) return;
    if (is_new && spread->schema.size)
        (void)rollout_send(&target->client, spread->name, "/schema", &spread->schema, fault);
}

/* Returns 0, or the exit code. */
static int prepare_all(struct spread *spread) {
    struct buffer why = {0};
    int code = 0;
    for (size_t i = 0; i < spread->count; i++) {
        struct target *target = &spread->targets[i];
        prepare(spread, target);
        if (target->fault.code && !code) code = cmd_exit_of(&target->fault);
        if (target->fault.code)
            buffer_printf(&why, "%s%s: %s", why.size ? "; " : "", target->client.datacenter, target->fault.text);
    }
    for (size_t i = 0; i < why.size; i++)
        if (why.data[i] == '\n' || why.data[i] == '\r') why.data[i] = ' ';
    if (code) fprintf(stderr, "Error preparing the regions: nothing is staged: %.*s\n", (int)why.size, why.data);
    buffer_free(&why);
    return code;
}

static int stage_all(struct spread *spread) {
    for (size_t i = 0; i < spread->count; i++) {
        struct target *target = &spread->targets[i];
        bool done = is_done(spread, target);
        if (!done) stage(spread, target);
        if (target->fault.code) {
            fprintf(stderr, "Error staging: %s: %s; regions behind it are as they were: run the command again\n",
                    target->client.datacenter, target->fault.text);
            return cmd_exit_of(&target->fault);
        }
        printf("%s: %s %s\n", target->client.datacenter, spread->version,
               done           ? "was staged already"
               : spread->part ? "is staged"
                              : "is for everybody");
        fflush(stdout);
    }
    return 0;
}

int rollout_stage_regions(const struct client *client, const char *regions, const char *name, const char *version,
                          const struct buffer *body, bool part) {
    struct spread *spread = mem_zalloc(sizeof *spread);
    struct fault fault = {0};
    char *list = mem_strdup(regions);
    *spread = (struct spread){.name = name, .version = version, .body = body, .part = part};
    int code = 0;
    if (take_regions(client, list, spread, &fault) || read_home(client, spread, &fault))
        code = cmd_failed("reading the rollout", &fault);
    else code = prepare_all(spread);
    if (!code) code = stage_all(spread);
    buffer_free(&spread->document), buffer_free(&spread->current), buffer_free(&spread->schema);
    free(list), free(spread);
    return code;
}
