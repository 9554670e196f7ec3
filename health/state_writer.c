#include "health/state_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "health/disk_file.h"

#define SPACING_MS 100
#define RETRY_MS   5000

struct state_writer {
    struct local *local;
    char *path, *aside;
    uv_work_t work;
    uv_timer_t timer;
    struct buffer bytes; /* the thread's while busy, as `at`, `fd` and `error` */
    uint64_t at;
    int fd, error; /* fd: the file that was last made anew; -1: it has to be made anew */
    uint64_t written_ms;
    bool whole, busy, closing, failing;
};

/* -- reading ------------------------------------------------------------------------------------------------------ */
static char *path_of(const struct local *local, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/local/%s%c", local->config.folder, name, '\0');
    return buffer_take(&path, NULL);
}

static void on_timer(uv_timer_t *timer) { state_writer_kick(timer->data); }

void state_writer_open(struct local *local) {
    struct state_writer *writer = mem_zalloc(sizeof *writer);
    struct buffer text = {0};
    char boot[BOOT_ID_SIZE];
    *writer = (struct state_writer){.local = local, .fd = -1};
    writer->path = path_of(local, "states");
    writer->aside = path_of(local, "states.new");
    int error = disk_file_read(writer->path, &text);
    if (error && error != ENOENT)
        log_error("health", "states of checks not read: %s file=%s", strerror(error), writer->path);
    (void)boot_id(boot);
    local->states = check_states_new(buffer_slice(&text), boot, check_moment_now());
    buffer_free(&text);
    writer->work.data = writer;
    uv_timer_init(local->loop, &writer->timer);
    writer->timer.data = writer;
    local->state_writer = writer;
}

/* -- noting (any thread, under the lock) -------------------------------------------------------------------------- */
void state_note(struct local *local, struct local_check *check, bool told) {
    bool was_urgent, urgent;
    if (!local->states) return;
    bool was_dirty = check_states_dirty(local->states, &was_urgent);
    if (check->item.removed) check_states_drop(local->states, &check->state);
    else
        check_states_note(local->states, &check->state, check->item.id, &check->core, check->shared->definition, told,
                          check_moment_now());
    bool dirty = check_states_dirty(local->states, &urgent);
    if (dirty && (!was_dirty || urgent != was_urgent)) local_wake(local);
}

/* -- writing (a thread of libuv's) -------------------------------------------------------------------------------- */
static int make_anew(struct state_writer *writer) {
    int fd = open(writer->aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int error = disk_file_write(fd, buffer_slice(&writer->bytes), 0);
    if (error == 0 && rename(writer->aside, writer->path) != 0) error = errno;
    if (error == 0) {
        writer->fd = fd;
        return 0;
    }
    unlink(writer->aside);
    close(fd);
    return error;
}

static void work(uv_work_t *request) {
    struct state_writer *writer = request->data;
    if (writer->whole) writer->error = make_anew(writer);
    else writer->error = disk_file_write(writer->fd, buffer_slice(&writer->bytes), writer->at);
    if (writer->error && writer->fd >= 0) {
        close(writer->fd);
        writer->fd = -1;
    }
}

/* -- one after the other (loop thread) ---------------------------------------------------------------------------- */
static void on_closed(uv_handle_t *handle) {
    struct state_writer *writer = handle->data;
    struct local *local = writer->local;
    if (writer->fd >= 0) close(writer->fd);
    buffer_free(&writer->bytes);
    free(writer->path);
    free(writer->aside);
    free(writer);
    local->state_writer = NULL;
    local_part_closed(local);
}

static void after_work(uv_work_t *request, int status) {
    struct state_writer *writer = request->data;
    (void)status;
    writer->busy = false;
    writer->written_ms = clock_mono_ms();
    if (writer->error && !writer->failing)
        log_error("health", "states of checks not saved, after a restart TTL checks may be critical: %s file=%s",
                  strerror(writer->error), writer->path);
    writer->failing = writer->error != 0;
    if (writer->whole) buffer_free(&writer->bytes);
    state_writer_kick(writer);
}

/* How long from now the next write has to wait; 0: it may begin at once. */
static uint64_t wait_ms(const struct state_writer *writer, bool urgent) {
    uint64_t passed = clock_mono_ms() - writer->written_ms, spacing = writer->failing ? RETRY_MS : SPACING_MS;
    if (writer->closing || (urgent && !writer->failing) || passed >= spacing) return 0;
    return spacing - passed;
}

void state_writer_kick(struct state_writer *writer) {
    struct local *local = writer->local;
    if (writer->busy || uv_is_closing((uv_handle_t *)&writer->timer)) return;
    if (writer->closing && writer->failing) {
        uv_close((uv_handle_t *)&writer->timer, on_closed);
        return;
    }
    buffer_reset(&writer->bytes);
    writer->whole = writer->fd < 0;
    bool urgent;
    local_lock(local);
    bool wanted = check_states_dirty(local->states, &urgent) || writer->failing;
    uint64_t wait = wait_ms(writer, urgent);
    if (wanted && wait == 0)
        writer->busy = check_states_gather(local->states, writer->whole, &writer->bytes, &writer->at);
    local_unlock(local);
    if (writer->busy) {
        CHECK(uv_queue_work(local->loop, &writer->work, work, after_work) == 0);
    } else if (wanted && wait > 0) {
        uv_update_time(local->loop);
        uv_timer_start(&writer->timer, on_timer, wait, 0);
    } else if (writer->closing) {
        uv_close((uv_handle_t *)&writer->timer, on_closed);
    }
}

void state_writer_close(struct state_writer *writer) {
    writer->closing = true;
    uv_timer_stop(&writer->timer);
    state_writer_kick(writer);
}
