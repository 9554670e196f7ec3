#include "health/store_files.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "health/state_writer.h"
#include "health/store_log.h"

#define VERSION  1
#define RETRY_MS 5000

struct store_files {
    struct local *local;
    struct store_log log; /* the thread's while busy */
    uv_work_t work;
    uv_timer_t retry;
    struct buffer lines; /* the lines that the thread writes */
    uint64_t batch_sequence;
    bool anew;   /* `lines` are the whole file; else they are appended */
    bool failed; /* the last batch did */
    bool busy, closing;
};

static void work(uv_work_t *request) {
    struct store_files *files = request->data;
    struct slice lines = buffer_slice(&files->lines);
    int error = files->anew ? store_log_rewrite(&files->log, lines) : store_log_append(&files->log, lines);
    files->failed = error != 0;
    if (error) log_error("health", "definitions not saved: %s file=%s", strerror(error), files->log.path);
}

/* -- what is to be written (loop thread, under the lock) ---------------------------------------------------------- */

static void write_service(struct json_out *json, const struct local_service *service) {
    json_key(json, "Service");
    json_object(json);
    service_definition_write(json, service->record);
    if (service->item.requester) json_key(json, "Token"), json_string(json, item_token_text(&service->item));
    json_key(json, "Checks");
    json_array(json);
    LIST_FOREACH(link, &service->checks) {
        const struct local_check *check = LIST_ENTRY(link, struct local_check, of_service);
        if (check->item.persist && !check->is_maintenance) check_definition_write(json, check->shared->definition);
    }
    json_array_end(json);
    json_object_end(json);
}

static void write_check(struct json_out *json, const struct local_check *check) {
    const struct check_definition *definition = check->shared->definition;
    if (!check->is_maintenance) {
        json_key(json, "Check");
        check_definition_write(json, definition);
        return;
    }
    json_key(json, "Maintenance");
    json_object(json);
    json_key(json, "ServiceID");
    json_string(json, definition->service_id);
    json_key(json, "Reason");
    json_string(json, definition->notes);
    json_object_end(json);
}

static bool is_kept(struct local *local, const struct item *item) {
    if (item->is_check) return check_has_own_file(local, CONTAINER_OF(item, struct local_check, item));
    return !item->removed && item->persist;
}

static void add_line(struct store_files *files, struct item *item) {
    struct buffer text = {0};
    struct json_out json;
    bool keep = is_kept(files->local, item);
    if (item->file_id) {
        store_log_line(&files->lines, item->is_check, item->file_id, slice_make("", 0));
        free(item->file_id);
        item->file_id = NULL;
    }
    if (keep) {
        json_out_init(&json, &text, false);
        json_object(&json);
        json_key(&json, "Version");
        json_u64(&json, VERSION);
        if (item->is_check) write_check(&json, as_check(item));
        else write_service(&json, as_service(item));
        json_object_end(&json);
    }
    if (keep || item->has_file) store_log_line(&files->lines, item->is_check, item->id, buffer_slice(&text));
    item->has_file = keep;
    buffer_free(&text);
}

static void add_all(struct store_files *files, struct item_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        struct item *item = table->items[i];
        item->has_file = false;
        if (is_kept(files->local, item)) add_line(files, item);
    }
}

/* Gathers the lines to write. False: there are none. */
static bool gather(struct store_files *files) {
    struct local *local = files->local;
    bool wanted = files->failed;
    files->anew = store_log_anew(&files->log);
    LIST_FOREACH_SAFE(link, next, &local->saves) {
        struct item *item = LIST_ENTRY(link, struct item, save);
        list_remove(&item->save);
        wanted = wanted || is_kept(local, item) || item->has_file;
        if (!files->anew) add_line(files, item);
        else if (!is_kept(local, item)) item->has_file = false;
        item_release(local, item);
    }
    if (!wanted || !files->anew) return wanted;
    add_all(files, &local->services);
    add_all(files, &local->checks);
    return true;
}

/* -- batches (loop thread) ---------------------------------------------------------------------------------------- */

static void finish(struct store_files *files);

static void on_retry(uv_timer_t *timer) { store_files_kick(timer->data); }

static void after_work(uv_work_t *request, int status) {
    struct store_files *files = request->data;
    (void)status;
    files->busy = false;
    if (files->anew) buffer_free(&files->lines);
    local_lock(files->local);
    files->local->saved_sequence = files->batch_sequence;
    files->local->unsaved = files->failed;
    local_unlock(files->local);
    local_waiters_look(files->local);
    if (files->failed && files->closing) {
        log_error("health", "definitions are lost: they could not be saved before the end");
        finish(files);
    } else if (files->failed) {
        uv_timer_start(&files->retry, on_retry, RETRY_MS, 0);
    } else {
        store_files_kick(files);
    }
}

void store_files_kick(struct store_files *files) {
    struct local *local = files->local;
    if (files->busy) return;
    uv_timer_stop(&files->retry); /* a new change does not wait for the next try */
    buffer_reset(&files->lines);
    local_lock(local);
    files->busy = gather(files);
    files->batch_sequence = local->sequence;
    if (!files->busy) local->saved_sequence = local->sequence;
    local_unlock(local);
    if (files->busy) {
        CHECK(uv_queue_work(local->loop, &files->work, work, after_work) == 0);
    } else {
        local_waiters_look(local);
        if (files->closing) finish(files);
    }
}

static void on_closed(uv_handle_t *handle) {
    struct store_files *files = handle->data;
    struct local *local = files->local;
    local->files = NULL;
    store_log_free(&files->log);
    buffer_free(&files->lines);
    free(files);
    local_part_closed(local);
}

static void finish(struct store_files *files) {
    if (uv_is_closing((uv_handle_t *)&files->retry)) return;
    uv_close((uv_handle_t *)&files->retry, on_closed);
}

void store_files_close(struct store_files *files) {
    files->closing = true;
    uv_timer_stop(&files->retry);
    store_files_kick(files);
}

/* -- loading ------------------------------------------------------------------------------------------------------ */

static int later_check(struct local *local, struct check_definition *definition, const char *service_id,
                       const char *reason) {
    struct waiting_check *waiting = mem_zalloc(sizeof *waiting);
    waiting->definition = definition;
    waiting->service_id = mem_strdup(service_id);
    waiting->reason = mem_strdup(reason);
    list_append(&local->waiting, &waiting->link);
    return CO_OK;
}

static int load_maintenance(struct local *local, struct json_object *json, struct fault *fault) {
    const char *service_id = "", *reason = "";
    json_get_string(json, "ServiceID", &service_id, fault);
    json_get_string(json, "Reason", &reason, fault);
    if (fault->code != CO_OK) return fault->code;
    if (*service_id && !live_service(local, slice_text(service_id))) {
        return later_check(local, NULL, service_id, reason);
    }
    return maintenance_put(local, slice_text(service_id), slice_text(reason), true);
}

static int load_json(struct local *local, struct json_object *json, struct fault *fault) {
    uint64_t version = 0;
    json_get_u64(json, "Version", UINT64_MAX, &version, fault);
    if (version != VERSION)
        return fault_set(fault, CO_UNSUPPORTED, "written by another version of coord (format %llu)",
                         (unsigned long long)version);
    struct json_object *service = json_get(json, "Service"), *check = json_get(json, "Check");
    struct json_object *maintenance = json_get(json, "Maintenance");
    if (service) {
        struct service_definition *definition = service_definition_parse(service, fault);
        return definition ? service_put(local, definition, false, true, true) : fault->code;
    }
    if (check) {
        struct check_definition *definition = check_definition_parse(check, fault);
        if (!definition) return fault->code;
        if (*definition->service_id && !live_service(local, slice_text(definition->service_id))) {
            return later_check(local, definition, definition->service_id, "");
        }
        return check_put(local, definition, true, true, fault);
    }
    if (maintenance) return load_maintenance(local, maintenance, fault);
    return fault_set(fault, CO_INVALID, "neither Service nor Check nor Maintenance in it");
}

static bool load_record(struct store_files *files, const struct store_record *record) {
    struct fault fault = {0};
    struct json_object *json = json_parse(record->json, &fault);
    if (json) load_json(files->local, json, &fault);
    json_object_put(json);
    if (fault.code == CO_OK) return true;
    log_error("health", "saved definition left out: %s file=%s line=%zu", fault.text, files->log.path, record->number);
    return false;
}

int store_files_open(struct local *local, struct fault *fault) {
    struct store_files *files = mem_zalloc(sizeof *files);
    struct buffer text = {0};
    struct store_record *records;
    size_t count, left_out = 0;
    files->local = local;
    int error = store_log_open(&files->log, local->config.folder, &text, &records, &count, fault);
    if (error == CO_OK) state_writer_open(local);
    /* local->files is set only later, so that the definitions that are loaded here are not saved again. */
    for (size_t i = 0; i < count && error == CO_OK; i++) left_out += !load_record(files, &records[i]);
    if (left_out) store_log_keep(&files->log);
    free(records);
    buffer_free(&text);
    if (error != CO_OK) {
        store_log_free(&files->log);
        free(files);
        return error;
    }
    files->work.data = files;
    uv_timer_init(local->loop, &files->retry);
    files->retry.data = files;
    local->files = files;
    return CO_OK;
}
