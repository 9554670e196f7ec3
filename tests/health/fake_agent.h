/* An agent's local state with its loop on a thread of its own, over a fake rpc that outlives restarts. */
#ifndef COORD_TESTS_HEALTH_FAKE_AGENT_H
#define COORD_TESTS_HEALTH_FAKE_AGENT_H

#include <pthread.h>

#include "health/local.h"

#define FAKE_AGENT_NODE "n1"
#define FAKE_AGENT_ID   "aa8b5fd8-2166-fa20-21b1-516072ab0089"

struct agent {
    struct rpc *rpc;
    struct local *local;
    char folder[64];            /* "": nothing is kept */
    int64_t sync_ns, update_ns; /* as in local_config; set between agent_stop and agent_start */
    struct check_permission permission;
    uint32_t flap_limit;
    int64_t flap_window_ns;
    int64_t lease_ttl_ns, alias_lost_ns; /* likewise */
    const char *file_service;            /* a definition that stands in a configuration file; NULL: none */
    bool leave;                          /* agent_stop leaves first */
    int left_error;                      /* what came of that */
    _Atomic unsigned changes;            /* so often it was told that something local changed */
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    uv_barrier_t ready;
};

struct agent *agent_new(bool keeps); /* started */
void agent_stop(struct agent *agent);
void agent_start(struct agent *agent); /* again, with what it kept */
void agent_free(struct agent *agent);  /* stops it and its rpc, removes its folder */

#endif
