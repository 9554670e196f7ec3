/* One simulated server: the core and the loop around it. This file carries out the core's effects in a turn of the
 * loop; storage.c has the disk side. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/sim/sim.h"

/* -- its clock -- */

static uint64_t server_clock_us(const struct server *server) {
    return server->clock_base_us + server->sim->now_us / 1000 * server->rate +
           server->sim->now_us % 1000 * server->rate / 1000;
}

uint64_t server_now_ms(const struct server *server) { return server_clock_us(server) / 1000; }

uint64_t server_wall_ms(const struct server *server) {
    uint64_t which[] = {server->sim->options.seed, server->id};
    return 1000000 + server->sim->now_us / MS + hash64(which, sizeof which) % 4000;
}

/* Virtual microseconds until its clock shows `ms`. */
static uint64_t server_until_us(const struct server *server, uint64_t ms) {
    uint64_t now = server_clock_us(server), then = ms * 1000;
    return then <= now ? 0 : (then - now) * 1000 / server->rate + 1;
}

static void server_arm(struct server *server) {
    uint64_t deadline = raft_deadline_ms(server->raft), other = edge_deadline_ms(server);
    if (other < deadline) deadline = other;
    if (deadline == UINT64_MAX) return;
    uint64_t after = server_until_us(server, deadline), at = server->sim->now_us + after;
    if (server->tick_at_us != NEVER && server->tick_at_us <= at) return; /* that one comes first and arms again */
    server->tick_at_us = at;
    sim_schedule(server->sim, after, EVENT_TICK, server->slot, ++server->tick_number, NULL);
}

static void server_tick(struct server *server, uint64_t number) {
    if (number != server->tick_number) return;
    server->tick_at_us = NEVER;
    uint64_t now_ms = server_now_ms(server);
    bool edge_due = edge_deadline_ms(server) <= now_ms;
    if (edge_due) {
        edge_tick(server);
        server_turn(server); /* which arms again */
    }
    if (raft_deadline_ms(server->raft) <= now_ms) {
        struct raft_event event = {.type = RAFT_TICK};
        server_step(server, &event);
    } else if (!edge_due) {
        server_arm(server);
    }
}

/* -- incarnation -- */

struct server *server_new(struct sim *sim) {
    CHECK(sim->server_count < SIM_SERVERS_MAX);
    struct server *server = mem_zalloc(sizeof *server);
    server->sim = sim;
    server->slot = sim->server_count;
    server->id = server->slot + 1;
    server->incarnation = 1;
    server->rate = 1000;
    server->clock_base_us = sim_random(sim, 0, 1u << 30);
    server->tick_at_us = NEVER;
    server->mood = (struct disk_mood){.delay_us = 200, .delay_span_us = 2 * MS};
    server->disk = fake_disk_new(rng_next(&sim->rng));
    server->queue_end = &server->queue;
    sim->servers[sim->server_count++] = server;
    return server;
}

void server_drop_applies(struct server *server) {
    for (size_t i = 0; i < server->apply_count; i++) {
        raft_data_unref(server->applies[i].data);
        if (server->origins[i]) edge_abandon(server, server->origins[i]);
    }
    server->apply_count = 0;
}

static void server_forget(struct server *server) {
    if (server->raft) edge_close(server);
    raft_free(server->raft);
    server->raft = NULL;
    server_drop_applies(server);
    server->apply_planned = server->turn_planned = false;
    server->tick_at_us = NEVER;
    server->paused_until_us = 0;
}

void server_free(struct server *server) {
    server_forget(server);
    storage_close(server);
    storage_drop_group(server);
    replica_close(&server->machine);
    fake_disk_free(server->disk);
    free(server->applies);
    free(server->origins);
    free(server->memory.terms);
    free(server->durable.terms);
    free(server);
}

void server_found(struct server *server, const struct raft_members *members) {
    struct buffer bytes = {0};
    raft_members_encode(members, &bytes);
    struct raft_entry first = {
        .index = 1, .term = 1, .type = RAFT_ENTRY_MEMBERS, .data = raft_data_new(bytes.data, bytes.size)};
    struct wal_batch batch = {.hard_state = true, .term = 1, .entries = &first, .entry_count = 1};
    struct wal_recovered recovered = {0};
    struct fault fault = {0};
    struct wal_config config = storage_config(server, 0);
    CHECK(wal_open(fake_disk_disk(server->disk), &config, 0, &server->wal, &recovered, &fault) == CO_OK);
    CHECK(wal_append(server->wal, &batch, 1, &fault) == CO_OK);
    wal_recovered_free(&recovered);
    wal_close(server->wal);
    server->wal = NULL;
    server->durable_term = 1;
    log_terms_append(&server->durable, 1);
    CHECK(chronicle_note(server->sim->chronicle, &first, 0) != NULL);
    raft_data_unref(first.data);
    buffer_free(&bytes);
}

void server_start(struct server *server) {
    struct sim *sim = server->sim;
    if (server->up || server->retired) return;
    server->incarnation++;
    struct raft_start start = {0};
    struct wal_recovered recovered = {0};
    int rv = storage_open(server, &start, &recovered);
    if (rv != CO_OK) {
        wal_recovered_free(&recovered);
        storage_close(server);
        if (fake_disk_halted(server->disk)) { /* it died while it started */
            server->machine_kept = server->machine_kept && sim_chance(sim, 500);
            fake_disk_crash(server->disk, server->machine_kept ? FAKE_KILL : FAKE_POWER_LOSS);
        }
        server_restart_after(server, sim_random(sim, 50, 300) * MS);
        return;
    }
    check_recovered(server, &start);
    storage_drop_group(server);
    TRACE(sim, "s%u starts: term %" PRIu64 " vote %" PRIu64 " snapshot %" PRIu64 " log ..%" PRIu64 " applied %" PRIu64,
          server->slot + 1, start.term, start.vote, start.snapshot.index, start.snapshot.index + start.entry_count,
          start.applied);
    struct raft_config config = sim->raft;
    config.id = server->id;
    config.seed = rng_next(&sim->rng);
    server->up = true;
    server->raft = raft_new(&config, &start, server_now_ms(server));
    wal_recovered_free(&recovered);
    check_started(server);
    server->applied_seen = start.applied;
    edge_open(server);
    edge_judge_disk(server); /* before the first message comes */
    server->seen_term = server->seen_vote = server->seen_leader_term = 0;
    server->seen_commit = raft_commit_index(server->raft);
    server->seen_applied = start.applied;
    server->restarts++;
    server_arm(server);
    if (start.term == 0 && server->founders.count > 0) {
        struct raft_event event = {
            .type = RAFT_BOOTSTRAP, .unix_ms = server_wall_ms(server), .u.bootstrap = &server->founders};
        CHECK(server_step(server, &event) == CO_OK);
    }
}

static void server_stop(struct server *server) {
    server->up = false;
    server->incarnation++;
    server_forget(server);
    links_gone(server);
}

void server_crash(struct server *server, enum crash crash) {
    if (!server->up) return;
    TRACE(server->sim, "s%u %s", server->slot + 1, crash == CRASH_POWER ? "loses power" : "is killed");
    server_stop(server);
    fake_disk_halt_after(server->disk, 1); /* what is closed now must not write any more */
    storage_close(server);
    fake_disk_crash(server->disk, crash == CRASH_POWER ? FAKE_POWER_LOSS : FAKE_KILL);
    server->machine_kept = crash == CRASH_KILL;
    server->process++;
    server->bad_ms = 0; /* another process knows nothing of it */
}

/* The core is poisoned: it is built anew from what the disk holds, without the process ending. */
static void server_rebuild(struct server *server) {
    TRACE(server->sim, "s%u has lost its log, opens it again", server->slot + 1);
    server_stop(server);
    storage_close(server);
    server->machine_kept = true;
    server_restart_after(server, sim_random(server->sim, 1, 100) * MS);
}

void server_restart_after(struct server *server, uint64_t us) {
    sim_schedule(server->sim, us, EVENT_RESTART, server->slot, 0, NULL);
}

bool server_leads(const struct server *server) { return server->up && raft_role(server->raft) == RAFT_LEADER; }

struct server *sim_leader(struct sim *sim) {
    struct server *leader = NULL;
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct server *server = sim->servers[i];
        if (server_leads(server) && (!leader || raft_term(server->raft) > raft_term(leader->raft))) leader = server;
    }
    return leader;
}

/* -- turns -- */

void server_turn(struct server *server) {
    if (server->turn_planned) return;
    server->turn_planned = true;
    uint64_t span = server->turn_span_us ? sim_random(server->sim, 0, server->turn_span_us) : 0;
    sim_schedule(server->sim, span, EVENT_TURN, server->slot, 0, NULL);
}

int server_step(struct server *server, struct raft_event *event) {
    event->now_ms = server_now_ms(server);
    int rv = raft_step(server->raft, event);
    server_turn(server);
    return rv;
}

static void apply_later(struct server *server, const struct raft_effects *fx) {
    for (size_t i = 0; i < fx->committed_count; i++) {
        const struct raft_entry *entry = &fx->committed[i];
        check_committed(server, entry);
        if (server->apply_count == server->apply_capacity) {
            server->apply_capacity = server->apply_capacity ? 2 * server->apply_capacity : 32;
            server->applies = mem_realloc(server->applies, server->apply_capacity * sizeof *server->applies);
            server->origins = mem_realloc(server->origins, server->apply_capacity * sizeof(struct node_proposal *));
        }
        raft_data_ref(entry->data);
        server->origins[server->apply_count] = requests_committed(&server->requests, entry->index, entry->term);
        server->applies[server->apply_count++] = *entry;
    }
    if (server->apply_count == 0 || server->apply_planned) return;
    server->apply_planned = true;
    sim_schedule(server->sim, sim_random(server->sim, 10, 10 + server->apply_delay_us), EVENT_APPLY, server->slot, 0,
                 NULL);
}

static const char *const role_names[] = {"follows", "asks for prevotes", "asks for votes", "leads"};

void server_flush(struct server *server) {
    struct sim *sim = server->sim;
    server->turn_planned = false;
    edge_judge_disk(server);
    requests_turn(&server->requests, server->raft, server_now_ms(server), server_wall_ms(server));
    const struct raft_effects *fx = raft_effects(server->raft);
    if (fx->role_changed)
        TRACE(sim, "s%u %s, term %" PRIu64, server->slot + 1, role_names[raft_role(server->raft)],
              raft_term(server->raft));
    for (size_t i = 0; i < fx->persist_count; i++) {
        check_persist(server, &fx->persists[i]);
        storage_persist(server, &fx->persists[i]);
    }
    server->taken_bytes = 0;
    check_observe(server);
    if (fx->role_changed && server_leads(server)) chaos_leader(sim, server);
    for (size_t i = 0; i < fx->message_count; i++) {
        check_message(server, &fx->messages[i]);
        network_send(sim, &fx->messages[i]);
    }
    apply_later(server, fx);
    for (size_t i = 0; i < fx->read_count; i++)
        requests_read_answered(&server->requests, fx->reads[i].context, fx->reads[i].index, fx->reads[i].error);
    for (size_t i = 0; i < fx->load_count; i++) storage_load(server, &fx->loads[i]);
    for (size_t i = 0; i < fx->chunk_read_count; i++) storage_chunk_read(server, &fx->chunk_reads[i]);
    for (size_t i = 0; i < fx->chunk_write_count; i++) storage_chunk_write(server, &fx->chunk_writes[i]);
    raft_effects_done(server->raft);
    struct raft_contradiction contradiction = raft_contradiction(server->raft);
    if (contradiction.index)
        sim_violation(sim, RULE_COMPLETE,
                      "s%u has committed index %" PRIu64 " of term %" PRIu64 ", its leader has it of term %" PRIu64,
                      server->slot + 1, contradiction.index, contradiction.term_here, contradiction.term_there);
    if (raft_failed(server->raft)) {
        server_rebuild(server);
        return;
    }
    edge_after_turn(server);
    storage_kick(server);
    server_arm(server);
}

/* -- events -- */

static const char *const message_names[] = {"?",      "prevote",      "prevote-reply", "vote",           "vote-reply",
                                            "append", "append-reply", "snapshot",      "snapshot-reply", "timeout-now"};

static void server_deliver(struct server *server, struct raft_data *packet) {
    struct sim *sim = server->sim;
    struct raft_message message;
    int rv = raft_message_decode(slice_make(packet->bytes, packet->size), &message);
    if (rv != CO_OK) {
        sim_violation(sim, RULE_CAP, "s%u cannot decode what was sent: %s", server->slot + 1, co_strerror(rv));
        return;
    }
    TRACE(sim,
          "s%" PRIu64 " <- s%" PRIu64 " %s term %" PRIu64 " last %" PRIu64 "/%" PRIu64 " entries %zu commit %" PRIu64
          " match %" PRIu64 "%s%s round %" PRIu64 " snapshot %" PRIu64 "+%" PRIu64,
          message.to, message.from, message_names[message.type], message.term, message.last_index, message.last_term,
          message.entry_count, message.commit, message.match, message.granted ? " granted" : "",
          message.rejected ? " rejected" : "", message.round, message.snapshot.index, message.offset);
    struct raft_event event = {.type = RAFT_RECEIVE};
    struct raft_message heard = {0};
    event.u.receive = &message;
    if (!edge_takes_in(server, &message)) heard = raft_message_heard(&message), event.u.receive = &heard;
    server_step(server, &event);
    if (message.type == RAFT_MSG_APPEND_REPLY && !message.rejected && server_leads(server))
        chaos_acknowledged(sim, server);
    raft_message_drop(&message);
}

struct applying {
    struct server *server;
    const struct raft_entry *next;
};

static void applied_one(void *data, void *origin, const struct machine_result *result) {
    struct applying *applying = data;
    const struct raft_entry *entry = applying->next++;
    check_applied(applying->server, entry, result);
    if (origin) edge_applied(applying->server, origin, result);
}

static void server_apply(struct server *server) {
    server->apply_planned = false;
    size_t count = server->apply_count > 0 ? sim_random(server->sim, 1, server->apply_count) : 0, old = 0;
    while (old < count && server->applies[old].index <= server->machine.applied) old++;
    struct applying applying = {server, server->applies + old};
    for (size_t i = 0; i < old; i++)
        if (server->origins[i]) edge_abandon(server, server->origins[i]);
    replica_apply(&server->machine, server->applies + old, (void *const *)(server->origins + old), count - old,
                  applied_one, &applying);
    if (count > old) check_state(server);
    sim_mix(server->sim, server->machine.sum);
    for (size_t i = 0; i < count; i++) raft_data_unref(server->applies[i].data);
    server->apply_count -= count;
    memmove(server->applies, server->applies + count, server->apply_count * sizeof *server->applies);
    memmove(server->origins, server->origins + count, server->apply_count * sizeof *server->origins);
    server->applied_seen = server->machine.applied;
    struct raft_event event = {.type = RAFT_APPLIED, .u.applied.index = server->machine.applied};
    server_step(server, &event);
}

void server_expiry_wake(void *data) {
    struct server *server = data;
    if (server->up) edge_poke(server);
}

static void server_lost(struct server *server, uint64_t peer) {
    struct raft_event event = {.type = RAFT_UNREACHABLE, .u.unreachable.peer = peer};
    server_step(server, &event);
}

/* Nobody there: who connects is refused. */
static void server_absent(struct server *server, const struct event *event) {
    struct sim *sim = server->sim;
    if (event->kind == EVENT_REQUEST) op_done(sim, event->number, OP_REFUSED, 0);
    if (event->kind == EVENT_DELIVER && sim_chance(sim, 200))
        sim_schedule(sim, sim_random(sim, 1, 10) * MS, EVENT_LOST, (uint32_t)(event->number & 0xff), server->id, NULL);
}

void server_event(struct server *server, struct event *event) {
    if (event->kind == EVENT_RESTART) {
        server_start(server);
        return;
    }
    if (!server->up) {
        server_absent(server, event);
        return;
    }
    switch (event->kind) {
        case EVENT_DELIVER:
            if (network_arrives(server->sim, server->slot, event->number)) server_deliver(server, event->payload);
            break;
        case EVENT_TICK: server_tick(server, event->number); break;
        case EVENT_TURN:
            if (server->turn_planned) server_flush(server);
            break;
        case EVENT_LOG_WRITE: storage_write(server); break;
        case EVENT_LOG_DONE: storage_written(server); break;
        case EVENT_APPLY: server_apply(server); break;
        case EVENT_JOB: storage_job(server, event->payload); break;
        case EVENT_COPY: storage_copy_go_on(server); break;
        case EVENT_LOST: server_lost(server, event->number); break;
        case EVENT_REQUEST: op_request(server, event->number); break;
        case EVENT_WATCH: watch_event(server, event->number); break;
        case EVENT_READ: op_read_now(server, event->number); break;
        case EVENT_FRAMES: links_arrive(server, (uint32_t)event->number); break;
        case EVENT_BEAT: links_beat(server); break;
        case EVENT_POKE: edge_poked(server); break;
        default: UNREACHABLE();
    }
}
