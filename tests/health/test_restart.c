/* A restart of an agent begins neither the time since a report nor the time to removal anew. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "agent_talk.h"
#include "base/check.h"
#include "base/hash.h"
#include "health/check_state.h"
#include "tests/lib/fake_rpc.h"

/* Of an agent that is stopped: all that its states say happened so many seconds earlier, by the clock that counts and by
 * the wall clock; or they are of another start of the machine. */
static void shift_states(const struct agent *agent, double seconds, double wall_seconds, bool other_boot) {
    char path[120], bytes[64 * CHECK_STATE_SIZE];
    snprintf(path, sizeof path, "%s/local/states", agent->folder);
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    cr_assert(size >= 2 * CHECK_STATE_SIZE && size % CHECK_STATE_SIZE == 0);
    if (other_boot) bytes[CHECK_STATE_SIZE / 2] ^= 1;
    for (size_t at = CHECK_STATE_SIZE; at < size; at += CHECK_STATE_SIZE) {
        struct check_state state;
        memcpy(&state, bytes + at, sizeof state);
        state.reported_ns -= (int64_t)(seconds * 1e9);
        state.told_wall_ns -= (int64_t)(wall_seconds * 1e9);
        if (state.critical_ns != CHECK_STATE_NO_TIME) state.critical_ns -= (int64_t)(seconds * 1e9);
        state.sum = hash64(&state, offsetof(struct check_state, sum));
        memcpy(bytes + at, &state, sizeof state);
    }
    cr_assert(fseek(file, 0, SEEK_SET) == 0 && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static void restart_after(struct agent *agent, double seconds) {
    agent_stop(agent);
    shift_states(agent, seconds, seconds, false);
    agent_start(agent);
}

/* Three restarts of 40 s each: what counts is the last report, not the last start. */
Test(restart, a_ttl_goes_on_over_restarts) {
    struct agent *agent = agent_new(true);
    register_service(
        agent,
        "{\"Name\":\"a\",\"Checks\":[{\"CheckID\":\"short\",\"TTL\":\"100s\"},{\"CheckID\":\"long\",\"TTL\":\"10m\"},"
        "{\"CheckID\":\"given\",\"TTL\":\"100s\",\"Status\":\"passing\"},{\"CheckID\":\"told\",\"TTL\":\"100s\"}]}");
    static const char *const told[] = {"short", "long", "told"};
    for (size_t i = 0; i < ARRAY_COUNT(told); i++) cr_assert(update(agent, told[i], PB__STATUS__PASSING, "well"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    for (int i = 0; i < 2; i++) {
        restart_after(agent, 40);
        UNTIL(local_synced(agent->local));
        cr_assert_eq(local_status(agent, "short"), PB__STATUS__PASSING, "after %d s", 40 * i + 40);
        cr_assert_eq(local_status(agent, "given"), PB__STATUS__PASSING);
        cr_assert(update(agent, "told", PB__STATUS__PASSING, "again"));
    }
    restart_after(agent, 40);
    UNTIL(catalog_output_is(agent, "short", "TTL expired (last output before timeout follows): well"));
    UNTIL(catalog_status(agent, "given") == PB__STATUS__CRITICAL);
    cr_assert_eq(catalog_status(agent, "short"), PB__STATUS__CRITICAL);
    cr_assert_eq(local_status(agent, "long"), PB__STATUS__PASSING);
    cr_assert_eq(local_status(agent, "told"), PB__STATUS__PASSING);
    cr_assert(update(agent, "short", PB__STATUS__PASSING, "again"));
    UNTIL(catalog_status(agent, "short") == PB__STATUS__PASSING);
    restart_after(agent, 80);
    UNTIL(local_synced(agent->local));
    cr_assert_eq(local_status(agent, "short"), PB__STATUS__PASSING, "a new TTL");
    agent_free(agent);
}

/* Nothing was heard of the servers since: the state is the agent's own. */
Test(restart, a_report_that_no_server_knows_is_not_forgotten) {
    struct agent *agent = agent_new(true);
    register_service(agent, "{\"Name\":\"a\",\"Check\":{\"CheckID\":\"c\",\"TTL\":\"10m\"}}");
    cr_assert(update(agent, "c", PB__STATUS__PASSING, "well"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    fake_rpc_leader(agent->rpc, false);
    cr_assert(update(agent, "c", PB__STATUS__WARNING, "not so well"));
    restart_after(agent, 1);
    cr_assert_eq(local_status(agent, "c"), PB__STATUS__WARNING, "before any server was heard");
    fake_rpc_leader(agent->rpc, true);
    UNTIL(catalog_status(agent, "c") == PB__STATUS__WARNING);
    agent_free(agent);
}

/* The wall clock went an hour ahead, or back, while the agent was away for a second. */
Test(restart, a_clock_that_jumps_meanwhile_ends_no_ttl) {
    for (int hours = -1; hours <= 1; hours += 2) {
        struct agent *agent = agent_new(true);
        register_service(
            agent,
            "{\"Name\":\"a\",\"Checks\":[{\"CheckID\":\"c\",\"TTL\":\"100s\"},{\"CheckID\":\"d\",\"TTL\":\"100s\"}]}");
        cr_assert(update(agent, "c", PB__STATUS__PASSING, "well"));
        cr_assert_eq(wait_synced(agent, 60000), CO_OK);
        agent_stop(agent);
        shift_states(agent, 1, hours * 3600, false);
        agent_start(agent);
        UNTIL(local_synced(agent->local));
        cr_assert_eq(local_status(agent, "c"), PB__STATUS__PASSING);
        agent_stop(agent);
        shift_states(agent, 100, 0, false);
        agent_start(agent);
        UNTIL(catalog_status(agent, "c") == PB__STATUS__CRITICAL);
        agent_free(agent);
    }
}

/* How long it had been up says nothing about the time between; a wall clock that went back says nothing either. */
Test(restart, a_machine_started_again_goes_by_the_wall_clock) {
    static const struct {
        double wall;
        int status;
    } rows[] = {{3600, PB__STATUS__CRITICAL}, {-3600, PB__STATUS__CRITICAL}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct agent *agent = agent_new(true);
        register_service(
            agent,
            "{\"Name\":\"a\",\"Checks\":[{\"CheckID\":\"c\",\"TTL\":\"10m\"},{\"CheckID\":\"d\",\"TTL\":\"87600h\"}]}");
        cr_assert(update(agent, "c", PB__STATUS__PASSING, "well") && update(agent, "d", PB__STATUS__PASSING, "well"));
        cr_assert_eq(wait_synced(agent, 60000), CO_OK);
        agent_stop(agent);
        shift_states(agent, 1, rows[i].wall, true);
        agent_start(agent);
        UNTIL(catalog_status(agent, "c") == rows[i].status);
        cr_assert_eq(catalog_status(agent, "d"), rows[i].wall > 0 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL);
        cr_assert(update(agent, "c", PB__STATUS__PASSING, "again"));
        UNTIL(catalog_status(agent, "c") == PB__STATUS__PASSING);
        restart_after(agent, 1); /* of this start now */
        UNTIL(local_synced(agent->local));
        cr_assert_eq(local_status(agent, "c"), PB__STATUS__PASSING);
        agent_free(agent);
    }
}

/* Without the file, or with one that does not add up, nobody can tell when a TTL check was reported. */
static void flip_byte(FILE *file, long at) {
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    cr_assert(byte != EOF && fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 0x5a, file) != EOF);
}

Test(restart, a_lost_state_is_critical) {
    for (int damaged = 0; damaged < 2; damaged++) {
        struct agent *agent = agent_new(true);
        agent_stop(agent);
        agent->file_service =
            "{\"Name\":\"f\",\"Check\":{\"CheckID\":\"file\",\"TTL\":\"10m\",\"Status\":\"passing\"}}";
        agent_start(agent);
        register_service(agent,
                         "{\"Name\":\"a\",\"Check\":{\"CheckID\":\"c\",\"TTL\":\"10m\",\"Status\":\"passing\"}}");
        cr_assert_eq(wait_synced(agent, 60000), CO_OK);
        cr_assert_eq(catalog_status(agent, "c"), PB__STATUS__PASSING);
        UNTIL(catalog_status(agent, "file") == PB__STATUS__PASSING);
        agent_stop(agent);
        char path[120];
        snprintf(path, sizeof path, "%s/local/states", agent->folder);
        FILE *file = fopen(path, "r+");
        cr_assert_not_null(file);
        for (long at = CHECK_STATE_SIZE; at < 3 * CHECK_STATE_SIZE; at += CHECK_STATE_SIZE) flip_byte(file, at + 20);
        fclose(file);
        if (!damaged) cr_assert_eq(unlink(path), 0);
        agent_start(agent);
        int status = local_status(agent, "c");
        cr_assert_eq(status, PB__STATUS__CRITICAL, "damaged=%d: status %d", damaged, status);
        UNTIL(catalog_status(agent, "c") == PB__STATUS__CRITICAL &&
              catalog_status(agent, "file") == PB__STATUS__CRITICAL);
        agent_free(agent);
    }
}

/* A status in a configuration file counts once, not at each start and each reload. */
Test(restart, files_report_nothing_twice) {
    static const char text[] =
        "{\"Name\":\"f\",\"Checks\":[{\"CheckID\":\"c\",\"TTL\":\"100s\",\"Status\":\"passing\"},"
        "{\"CheckID\":\"w\",\"TTL\":\"10m\"}]}";
    struct agent *agent = agent_new(true);
    agent_stop(agent);
    agent->file_service = text;
    agent_start(agent);
    cr_assert(update(agent, "w", PB__STATUS__WARNING, "so so"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    for (int i = 1; i <= 3; i++) {
        agent_stop(agent);
        shift_states(agent, 40, 40, false);
        agent_start(agent);
        cr_assert_eq(register_service_as(agent, text, false, false), CO_OK, "a reload");
        UNTIL(local_synced(agent->local) &&
              catalog_status(agent, "c") == (i < 3 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL));
        cr_assert_eq(local_status(agent, "w"), PB__STATUS__WARNING);
        cr_assert(catalog_output_is(agent, "w", "so so"));
    }
    agent_free(agent);
}

/* A registration is a report where it says a status, also one that changes the TTL. */
Test(restart, registering_again_is_a_report_with_a_status_only) {
    static const char *const texts[] = {"{\"Name\":\"c\",\"TTL\":\"100s\"}", "{\"Name\":\"c\",\"TTL\":\"110s\"}",
                                        "{\"Name\":\"c\",\"TTL\":\"110s\",\"Status\":\"passing\"}"};
    struct agent *agent = agent_new(true);
    cr_assert_eq(register_check(agent, texts[0]), CO_OK);
    cr_assert(update(agent, "c", PB__STATUS__PASSING, "well"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    restart_after(agent, 60);
    cr_assert_eq(register_check(agent, texts[0]), CO_OK);
    restart_after(agent, 10);
    cr_assert_eq(register_check(agent, texts[1]), CO_OK, "another TTL");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(local_status(agent, "c"), PB__STATUS__PASSING);
    restart_after(agent, 35);
    cr_assert_eq(register_check(agent, texts[2]), CO_OK);
    restart_after(agent, 85);
    UNTIL(local_synced(agent->local));
    cr_assert_eq(local_status(agent, "c"), PB__STATUS__PASSING, "that was one");
    cr_assert_eq(register_check(agent, texts[1]), CO_OK, "not one");
    restart_after(agent, 25);
    UNTIL(catalog_status(agent, "c") == PB__STATUS__CRITICAL);
    agent_free(agent);
}

/* The removal of a service goes on over restarts, but not before somebody had a TTL's time to report. */
Test(restart, critical_time_adds_up_and_is_spared_at_first) {
    struct agent *agent = agent_new(true);
    register_service(
        agent,
        "{\"Name\":\"a\",\"Check\":{\"CheckID\":\"c\",\"TTL\":\"1s\",\"DeregisterCriticalServiceAfter\":\"1m\"}}");
    register_service(
        agent,
        "{\"Name\":\"b\",\"Check\":{\"CheckID\":\"d\",\"TTL\":\"10m\",\"DeregisterCriticalServiceAfter\":\"1m\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    restart_after(agent, 40);
    UNTIL(local_synced(agent->local));
    cr_assert(has_service(agent, "a"));
    uint64_t begun_ms = clock_mono_ms();
    restart_after(agent, 30);
    UNTIL(local_synced(agent->local));
    UNTIL(!has_service(agent, "a"));
    cr_assert_geq(clock_mono_ms() - begun_ms, 990, "not before: its TTL begins");
    cr_assert(has_service(agent, "b"));
    cr_assert(update(agent, "d", PB__STATUS__PASSING, "it lives"));
    UNTIL(catalog_status(agent, "d") == PB__STATUS__PASSING);
    agent_free(agent);
}

static bool state_of(const struct agent *agent, const char *id, struct check_state *state) {
    char path[120];
    uint8_t key[16];
    hash128(id, strlen(id), key);
    snprintf(path, sizeof path, "%s/local/states", agent->folder);
    FILE *file = fopen(path, "r");
    bool found = false;
    while (file && !found && fread(state, sizeof *state, 1, file) == 1)
        found = memcmp(state->key, key, sizeof key) == 0;
    if (file) fclose(file);
    return found;
}

/* Reports come at any rate: the file is written ten times a second at most; without TTLs and thresholds it is not there. */
Test(restart, reports_are_written_together) {
    struct agent *agent = agent_new(true);
    struct check_state state;
    char path[120];
    snprintf(path, sizeof path, "%s/local/states", agent->folder);
    register_service(agent,
                     "{\"Name\":\"b\",\"Check\":{\"CheckID\":\"p\",\"HTTP\":\"http://127.0.0.1:1/"
                     "\",\"Interval\":\"10ms\",\"Timeout\":\"1s\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    UNTIL(catalog_status(agent, "p") == PB__STATUS__CRITICAL);
    cr_assert_neq(access(path, F_OK), 0);
    register_service(agent, "{\"Name\":\"a\",\"Check\":{\"CheckID\":\"c\",\"TTL\":\"1m\"}}");
    cr_assert(update(agent, "c", PB__STATUS__PASSING, "well"));
    UNTIL(state_of(agent, "c", &state) && state.status == PB__STATUS__PASSING);
    int64_t last = state.reported_ns;
    unsigned writes = 0;
    uint64_t begun_ms = clock_mono_ms(), took_ms = 0;
    while (took_ms < 1000 || (writes < 2 && took_ms < UNTIL_MS)) {
        for (int i = 0; i < 100; i++) cr_assert(update(agent, "c", PB__STATUS__PASSING, "well"));
        cr_assert(state_of(agent, "c", &state));
        writes += state.reported_ns != last;
        last = state.reported_ns;
        took_ms = clock_mono_ms() - begun_ms;
    }
    cr_expect(writes >= 2 && writes <= took_ms / 100 + 2, "%u in %llu ms", writes, (unsigned long long)took_ms);
    int64_t then = (int64_t)clock_boot_ns();
    cr_assert(update(agent, "c", PB__STATUS__PASSING, "well"));
    UNTIL(state_of(agent, "c", &state) && state.reported_ns >= then);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("a")), CO_OK);
    UNTIL(!state_of(agent, "c", &state));
    agent_free(agent);
}
