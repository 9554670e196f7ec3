#include "truth.h"

#include <json-c/json.h>
#include <stdio.h>

#include "base/json_in.h"
#include "web.h"

#define TOLD_MOST 5

struct comparison {
    struct web *web;
    struct fleet_agent *agent;
    bool tell;
    unsigned told;
};

static bool differs(struct comparison *c, const char *what, const char *id) {
    if (c->tell && c->told++ < TOLD_MOST) printf("difference node=%s %s=%s\n", c->agent->node, what, id);
    return true;
}

static struct json_object *ask(struct comparison *c, const char *of) {
    char path[200];
    snprintf(path, sizeof path, "%s%s", of, c->agent->node);
    return web_get(c->web, path, NULL, NULL);
}

/* The catalog's checks of the node, but the one of its lease. */
static bool checks_differ(struct comparison *c, struct arena *arena) {
    Pb__Check **local;
    size_t count = local_checks(c->agent->local, arena, &local), found = 0;
    struct json_object *checks = ask(c, "/v1/health/node/");
    bool different = !checks;
    for (size_t i = 0; checks && i < json_object_array_length(checks); i++) {
        struct json_object *json = json_object_array_get_idx(checks, i);
        const char *id = json_object_get_string(json_get(json, "CheckID"));
        if (strcmp(id, "serfHealth") == 0) {
            if (strcmp(json_object_get_string(json_get(json, "Status")), "passing") != 0)
                different = differs(c, "dead", id);
            continue;
        }
        found++;
        size_t n = 0;
        while (n < count && strcmp(local[n]->check_id, id) != 0) n++;
        if (n == count) different = differs(c, "unknown-check", id);
        else if (strcmp(json_object_get_string(json_get(json, "Status")), fleet_status_name(local[n]->status)) != 0)
            different = differs(c, "status", id);
        else if (!slice_is(slice_make((char *)local[n]->output.data, local[n]->output.len),
                           json_object_get_string(json_get(json, "Output"))))
            different = differs(c, "output", id);
    }
    if (found != count) different = differs(c, "checks-missing", "");
    json_object_put(checks);
    return different;
}

static bool services_differ(struct comparison *c, struct arena *arena) {
    Pb__Service **local;
    size_t count = local_services(c->agent->local, arena, &local), found = 0;
    struct json_object *node = ask(c, "/v1/catalog/node/"), *services = node ? json_get(node, "Services") : NULL;
    bool different = !services;
    if (services) {
        json_each(services, id, service) {
            size_t n = 0;
            while (n < count && strcmp(local[n]->id, id) != 0) n++;
            found++;
            if (n == count) different = differs(c, "unknown-service", id);
            else if (strcmp(json_object_get_string(json_get(service, "Service")), local[n]->name) != 0)
                different = differs(c, "name", id);
        }
    }
    if (found != count) different = differs(c, "services-missing", "");
    json_object_put(node);
    return different;
}

unsigned truth_compare(struct fleet *fleet, const char *http, bool tell) {
    struct comparison c = {.web = web_new(http), .tell = tell};
    unsigned different = 0;
    for (unsigned i = 0; i < fleet->config.agents; i++) {
        struct arena arena = {0};
        c.agent = &fleet->agents[i];
        bool checks = checks_differ(&c, &arena), services = services_differ(&c, &arena);
        different += checks || services;
        arena_free(&arena);
    }
    web_free(c.web);
    return different;
}
