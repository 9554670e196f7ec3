#include "agent/control.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/definitions.h"
#include "agent/flags.h"
#include "agent/outputs.h"
#include "agent/watch.h"
#include "base/check.h"
#include "base/log.h"
#include "multi-dc/links_run.h"
#include "rpc/wire/address.h"

struct acts {
    struct acts_config config;
    uv_async_t wake;
    struct mailbox box;
    struct http_control *first, **last; /* first: under way while `busy` */
    bool busy, hurry, leaving;          /* leaving: the first one waits for acts_left */
    struct watches *watches, *before;   /* before: watches that are about to end */
    char *own_address;
    void (*closed)(void *data);
    void *closed_data;

    struct rpc_join join;
    struct links_join join_wan;

    /* reloading: the configuration of the present definitions; NULL: the one that the agent was started with */
    uv_work_t work;
    struct config *loaded, *next;
    struct fault fault;
    struct http_control own;
    bool own_taken;
};

static void begin(struct acts *acts);

static void finish(struct acts *acts, int error) {
    struct http_control *act = acts->first;
    acts->first = act->next;
    if (!acts->first) acts->last = &acts->first;
    acts->busy = false;
    act->done(act, error);
    begin(acts);
}

/* -- joining ------------------------------------------------------------------------------------------------------ */
static uint16_t server_port(const struct acts *acts) {
    const struct config *c = acts->config.config;
    return c->server_port > 0 ? (uint16_t)c->server_port : 8300;
}

/* The fault of a join. `address` has a port. A peer that refuses the hello is a server, so the port is not doubted
 * then. */
static void not_joined(const struct acts *acts, struct http_control *act, const char *address,
                       const struct fault *why) {
    bool hint = why->code != CO_DENIED && why->code != CO_UNSUPPORTED &&
                strtoul(strrchr(address, ':') + 1, NULL, 10) != server_port(acts);
    char port[48] = "";
    if (hint) snprintf(port, sizeof port, " (%u is the servers' port)", server_port(acts));
    fault_set(&act->fault, why->code, "Failed to join %.100s: %s%s", act->address, why->text, port);
}

static void joined(struct rpc_join *join, int error) {
    struct acts *acts = CONTAINER_OF(join, struct acts, join);
    struct http_control *act = acts->first;
    if (error) not_joined(acts, act, join->address, &join->fault);
    else log_info("agent", "joined address=%s", join->address);
    finish(acts, error);
}

static bool joinable(struct http_control *act) {
    const char *why = address_refused(act->address);
    if (why) fault_set(&act->fault, CO_INVALID, "Failed to join %.40s: it %s", act->address, why);
    return !why;
}

static void join(struct acts *acts, struct http_control *act) {
    acts->join = (struct rpc_join){.done = joined};
    if (!joinable(act) || !address_complete(act->address, server_port(acts), acts->join.address))
        finish(acts, CO_INVALID);
    else rpc_join(acts->config.rpc, &acts->join);
}

static void joined_wan(struct links_join *join, int error) {
    struct acts *acts = CONTAINER_OF(join, struct acts, join_wan);
    struct http_control *act = acts->first;
    if (error) fault_set(&act->fault, error, "Failed to join %.100s: %s", act->address, join->fault.text);
    else log_info("agent", "joined address=%s region=%s", join->address, join->ask.region);
    finish(acts, error);
}

static void join_wan(struct acts *acts, struct http_control *act) {
    const struct config *c = acts->config.config;
    acts->join_wan = (struct links_join){.done = joined_wan, .wanted = true};
    if (!acts->config.links)
        finish(acts, fault_set(&act->fault, CO_UNSUPPORTED, "Failed to join %.100s: %s", act->address,
                               c->server ? "this server is alone by configuration (-dev)"
                                         : "only servers join other regions"));
    else if (!joinable(act) || !address_complete(act->address, server_port(acts), acts->join_wan.address))
        finish(acts, CO_INVALID);
    else links_join(acts->config.links, &acts->join_wan);
}

/* -- reloading: the thread pool reads, the loop applies ----------------------------------------------------------- */
static void read_again(uv_work_t *work) {
    struct acts *acts = CONTAINER_OF(work, struct acts, work);
    bool help = false;
    watches_stop(acts->before);
    acts->before = NULL;
    config_init(acts->next);
    flags_parse(acts->config.argc, acts->config.argv, acts->next, &help, &acts->fault);
    config_finish(acts->next, &acts->fault);
    definitions_check(acts->next, &acts->fault);
    config_errors_log(acts->next);
    if (acts->fault.code) return;
    (void)config_require_protection(acts->next, &acts->fault);
    config_guards_log(acts->next);
}

static void config_drop(struct config *config) {
    if (!config) return;
    config_free(config);
    free(config);
}

static bool same_blocks(const struct config_blocks *a, const struct config_blocks *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) same = json_object_equal(a->items[i].json, b->items[i].json);
    return same;
}

/* Replaces the watches; unchanged ones go on. Handlers of the others may end by themselves until the next reload, which
 * waits for them on another thread. */
static void watch_anew(struct acts *acts, const struct config *was, const struct config *now) {
    if (!acts->own_address || same_blocks(&was->watches, &now->watches)) return;
    CHECK(!acts->before);
    acts->before = acts->watches;
    acts->watches = watches_start(&now->watches, acts->own_address, NULL, acts->before);
    watches_soon(acts->before);
}

void acts_watch(struct acts *acts, const char *address) {
    acts->own_address = mem_strdup(address);
    acts->watches = watches_start(&acts->config.config->watches, address, NULL, NULL);
}

void acts_left(struct acts *acts, const struct fault *fault, const char *note) {
    if (!acts || !acts->leaving) return;
    struct http_control *act = acts->first;
    acts->leaving = false;
    act->fault = *fault;
    if (!fault->code) snprintf(act->fault.text, sizeof act->fault.text, "%s", note);
    finish(acts, fault->code);
}

void acts_hurry(struct acts *acts) {
    static const struct fault stops = {.code = CO_CLOSED, .text = "this agent stops"};
    if (!acts) return;
    acts->hurry = true;
    acts_left(acts, &stops, "");
}

void acts_unwatch(struct acts *acts) {
    if (!acts) return;
    watches_hurry(acts->before);
    watches_stop(acts->watches);
    watches_stop(acts->before);
    acts->watches = acts->before = NULL;
}

/* Logs the changed keys that take effect only after a restart. */
static void warn_of_restart(struct acts *acts) {
    struct config_texts lines;
    config_differences(acts->config.config, acts->next, &lines);
    for (size_t i = 0; i < lines.count; i++) log_warn("config", "%s", lines.items[i]);
    acts->first->warnings = lines.items;
}

static void was_read(uv_work_t *work, int status) {
    struct acts *acts = CONTAINER_OF(work, struct acts, work);
    const struct config *now = acts->loaded ? acts->loaded : acts->config.config;
    CHECK(status == 0);
    int rv = acts->fault.code;
    if (acts->hurry) rv = fault_set(&acts->fault, CO_CLOSED, "this agent stops");
    if (rv == CO_OK) rv = definitions_replace(acts->config.local, now, acts->next, &acts->fault);
    struct config *drop = rv == CO_OK ? acts->loaded : acts->next;
    if (rv == CO_OK) {
        watch_anew(acts, now, acts->next);
        warn_of_restart(acts);
        acts->loaded = acts->next;
        log_level_set(log_level_parse(slice_text(acts->loaded->log_level)));
        acts->config.reloaded(acts->config.data, acts->loaded);
        log_info("agent", "the configuration was read again services=%zu checks=%zu", acts->loaded->services.count,
                 acts->loaded->checks.count);
    } else {
        log_error("agent", "the configuration is not read again, all stays as it was: %s", acts->fault.text);
        if (acts->next->errors.count > 1) acts->first->warnings = acts->next->errors.items;
    }
    acts->next = NULL;
    acts->first->fault = acts->fault;
    finish(acts, rv);
    config_drop(drop); /* the fault's text may point into it */
}

static void reload(struct acts *acts) {
    outputs_reopen();
    acts->fault = (struct fault){0};
    acts->next = mem_zalloc(sizeof *acts->next);
    CHECK(uv_queue_work(acts->config.loop, &acts->work, read_again, was_read) == 0);
}

/* -- the queue of requests ---------------------------------------------------------------------------------------- */
static void wake_closed(uv_handle_t *handle) {
    struct acts *acts = handle->data;
    void (*closed)(void *) = acts->closed;
    void *data = acts->closed_data;
    config_drop(acts->loaded);
    free(acts->own_address);
    free(acts);
    closed(data);
}

static void begin(struct acts *acts) {
    if (acts->busy) return;
    if (!acts->first) {
        if (acts->closed && !uv_is_closing((uv_handle_t *)&acts->wake))
            uv_close((uv_handle_t *)&acts->wake, wake_closed);
        return;
    }
    struct http_control *act = acts->first;
    acts->busy = true;
    if (acts->closed || acts->hurry) {
        finish(acts, CO_CLOSED);
    } else if (act->kind == HTTP_CONTROL_JOIN) {
        join(acts, act);
    } else if (act->kind == HTTP_CONTROL_JOIN_WAN) {
        join_wan(acts, act);
    } else if (act->kind == HTTP_CONTROL_RELOAD) {
        reload(acts);
    } else {
        log_info("agent", "leaving: asked to");
        acts->leaving = true;
        acts->config.leave(acts->config.data);
    }
}

static void woken(uv_async_t *async) {
    struct acts *acts = async->data;
    for (struct mail *mail = mailbox_take(&acts->box), *next; mail; mail = next) {
        next = mail->next;
        struct http_control *act = CONTAINER_OF(mail, struct http_control, mail);
        act->next = NULL;
        *acts->last = act;
        acts->last = &act->next;
    }
    begin(acts);
}

void acts_take(void *data, struct http_control *act) {
    struct acts *acts = data;
    if (mailbox_put(&acts->box, &act->mail)) uv_async_send(&acts->wake);
}

static void own_done(struct http_control *act, int error) {
    (void)error;
    CONTAINER_OF(act, struct acts, own)->own_taken = false;
}

void acts_reload(struct acts *acts) {
    if (acts->own_taken) return;
    acts->own_taken = true;
    acts->own = (struct http_control){.kind = HTTP_CONTROL_RELOAD, .done = own_done};
    acts_take(acts, &acts->own);
}

struct acts *acts_new(const struct acts_config *config) {
    struct acts *acts = mem_zalloc(sizeof *acts);
    acts->config = *config;
    acts->last = &acts->first;
    CHECK(uv_async_init(config->loop, &acts->wake, woken) == 0);
    acts->wake.data = acts;
    return acts;
}

void acts_stop(struct acts *acts, void (*closed)(void *data), void *data) {
    if (!acts) {
        closed(data);
        return;
    }
    acts->closed = closed, acts->closed_data = data;
    woken(&acts->wake);
}
