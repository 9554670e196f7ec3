#include "health/store_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define VERSION   1
#define FILE_MOST ((off_t)4 << 20)
#define RETRY_MS  5000

/* One file to be written, or removed (content NULL). */
struct save {
    struct save *next;
    bool is_check, failed;
    char *id, *content;
    size_t size;
};

struct store_files {
    struct local *local;
    char *folders[2]; /* services, checks */
    uv_work_t work;
    uv_timer_t retry;
    struct save *batch; /* what the thread works on */
    uint64_t batch_sequence;
    bool busy, closing;
};

/* -- one file (any thread)
 * ------------------------------------------------------------------------------------------------ */

static char *path_of(const struct store_files *files, bool is_check, const char *id, const char *suffix) {
    uint8_t hash[16];
    struct buffer path = {0};
    hash128(id, strlen(id), hash);
    buffer_printf(&path, "%s/", files->folders[is_check]);
    for (size_t i = 0; i < sizeof hash; i++) buffer_printf(&path, "%02x", hash[i]);
    buffer_printf(&path, ".json%s%c", suffix, '\0');
    return buffer_take(&path, NULL);
}

static int write_whole(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t wrote = write(fd, data, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return errno;
        data += wrote;
        size -= (size_t)wrote;
    }
    return 0;
}

/* Returns an errno value. */
static int write_file(const char *aside, const char *path, const struct save *save) {
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int error = write_whole(fd, save->content, save->size);
    if (error == 0 && fdatasync(fd) != 0) error = errno;
    if (close(fd) != 0 && error == 0) error = errno;
    if (error == 0 && rename(aside, path) != 0) error = errno;
    if (error != 0) unlink(aside);
    return error;
}

static void carry_out(const struct store_files *files, struct save *save) {
    char *path = path_of(files, save->is_check, save->id, "");
    int error = 0;
    if (save->content) {
        char *aside = path_of(files, save->is_check, save->id, ".new");
        error = write_file(aside, path, save);
        free(aside);
    } else if (unlink(path) != 0 && errno != ENOENT) {
        error = errno;
    }
    save->failed = error != 0;
    if (error) {
        log_error("health", "definition not saved: %s file=%s %s=%s", strerror(error), path,
                  save->is_check ? "check" : "service", save->id);
    }
    free(path);
}

static void sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        log_error("health", "folder not synced: %s folder=%s", strerror(errno), folder);
    if (fd >= 0) close(fd);
}

static void work(uv_work_t *request) {
    struct store_files *files = request->data;
    bool used[2] = {false, false};
    for (struct save *save = files->batch; save; save = save->next) {
        carry_out(files, save);
        used[save->is_check] = true;
    }
    for (int i = 0; i < 2; i++) {
        if (used[i]) sync_folder(files->folders[i]);
    }
}

/* -- batches (loop thread)
 * -------------------------------------------------------------------------------------------------------- */

static void write_service(struct json_out *json, const struct local_service *service) {
    json_key(json, "Service");
    json_object(json);
    service_definition_write(json, service->record);
    json_key(json, "Checks");
    json_array(json);
    LIST_FOREACH(link, &service->checks) {
        const struct local_check *check = LIST_ENTRY(link, struct local_check, of_service);
        if (check->item.persist && !check->is_maintenance)
            check_definition_write(json, check->shared->definition);
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

/* Under the lock. NULL: nothing to be done. */
static struct save *plan(struct local *local, struct item *item) {
    bool keep = item->is_check ? check_has_own_file(local, as_check(item)) : !item->removed && item->persist;
    if (!keep && !item->has_file) return NULL;
    struct save *save = mem_zalloc(sizeof *save);
    save->is_check = item->is_check;
    save->id = mem_strdup(item->id);
    item->has_file = keep;
    if (!keep) return save;
    struct buffer text = {0};
    struct json_out json;
    json_out_init(&json, &text, false);
    json_object(&json);
    json_key(&json, "Version");
    json_u64(&json, VERSION);
    if (item->is_check) {
        write_check(&json, as_check(item));
    } else {
        write_service(&json, as_service(item));
    }
    json_object_end(&json);
    buffer_append_byte(&text, '\n');
    save->content = buffer_take(&text, &save->size);
    return save;
}

/* A file that could not be written is tried again while its item stands. */
static bool batch_free(struct store_files *files) {
    struct local *local = files->local;
    bool failed = false;
    for (struct save *save = files->batch, *next; save; save = next) {
        next = save->next;
        struct item *item =
            save->failed ? item_find(save->is_check ? &local->checks : &local->services, slice_text(save->id))
                         : NULL;
        if (item) {
            item->has_file = true; /* perhaps an old one */
            if (list_empty(&item->save)) list_append(&local->saves, &item->save);
            failed = true;
        }
        free(save->id);
        free(save->content);
        free(save);
    }
    files->batch = NULL;
    return failed;
}

static void finish(struct store_files *files);

static void on_retry(uv_timer_t *timer) { store_files_kick(timer->data); }

static void after_work(uv_work_t *request, int status) {
    struct store_files *files = request->data;
    (void)status;
    files->busy = false;
    local_lock(files->local);
    bool failed = batch_free(files);
    files->local->saved_sequence = files->batch_sequence;
    files->local->unsaved = failed;
    local_unlock(files->local);
    local_waiters_look(files->local);
    if (failed && files->closing) {
        log_error("health", "definitions are lost: they could not be saved before the end");
        finish(files);
    } else if (failed) {
        uv_timer_start(&files->retry, on_retry, RETRY_MS, 0);
    } else {
        store_files_kick(files);
    }
}

void store_files_kick(struct store_files *files) {
    struct local *local = files->local;
    if (files->busy) return;
    uv_timer_stop(&files->retry);      /* whoever changes something does not wait for the next try */
    struct save **end = &files->batch;
    local_lock(local);
    LIST_FOREACH_SAFE(link, next, &local->saves) {
        struct item *item = LIST_ENTRY(link, struct item, save);
        list_remove(&item->save);
        if ((*end = plan(local, item))) end = &(*end)->next;
        item_release(local, item);
    }
    files->batch_sequence = local->sequence;
    if (!files->batch) local->saved_sequence = local->sequence;
    local_unlock(local);
    if (files->batch) {
        files->busy = true;
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
    free(files->folders[0]);
    free(files->folders[1]);
    free(files);
    local_part_closed(local);
}

static void finish(struct store_files *files) {
    if (!uv_is_closing((uv_handle_t *)&files->retry)) uv_close((uv_handle_t *)&files->retry, on_closed);
}

void store_files_close(struct store_files *files) {
    files->closing = true;
    uv_timer_stop(&files->retry);
    store_files_kick(files);
}

/* -- loading
 * ------------------------------------------------------------------------------------------------------------------------------
 */

static char *read_file(const char *path, size_t *size, struct fault *fault) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        fault_set(fault, co_from_errno(errno), "%s", strerror(errno));
        if (fd >= 0) close(fd);
        return NULL;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > FILE_MOST) {
        fault_set(fault, CO_TOOLARGE, "not a file of definitions");
        close(fd);
        return NULL;
    }
    char *text = mem_alloc((size_t)info.st_size + 1);
    size_t at = 0;
    for (ssize_t got; at < (size_t)info.st_size; at += (size_t)got) {
        got = read(fd, text + at, (size_t)info.st_size - at);
        if (got < 0 && errno == EINTR) {
            got = 0;
        } else if (got <= 0) {
            break;
        }
    }
    close(fd);
    *size = at;
    return text;
}

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
        return fault_set(fault, CO_UNSUPPORTED, "written by another version of coord (format %llu)", (unsigned long long)version);
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

static void load_file(struct local *local, const char *path) {
    struct fault fault = {0};
    size_t size = 0;
    char *text = read_file(path, &size, &fault);
    struct json_object *json = text ? json_parse(slice_make(text, size), &fault) : NULL;
    if (json) load_json(local, json, &fault);
    if (fault.code != CO_OK) log_error("health", "saved definition left out: %s file=%s", fault.text, path);
    json_object_put(json);
    free(text);
}

static int load_folder(struct local *local, const char *folder, struct fault *fault) {
    DIR *dir = opendir(folder);
    if (!dir) return fault_set(fault, co_from_errno(errno), "%s: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s%c", folder, entry->d_name, '\0');
        if (length > 9 && strcmp(entry->d_name + length - 9, ".json.new") == 0) {
            unlink(path.data); /* a write that a crash cut short: the whole file was not there yet */
        } else if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) {
            load_file(local, path.data);
        }
        buffer_free(&path);
    }
    closedir(dir);
    return CO_OK;
}

int store_files_open(struct local *local, struct fault *fault) {
    static const char *const names[2] = {"services", "checks"};
    struct store_files *files = mem_zalloc(sizeof *files);
    files->local = local;
    int error = CO_OK;
    for (int i = 0; i < 2; i++) {
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s%c", local->config.folder, names[i], '\0');
        files->folders[i] = buffer_take(&path, NULL);
        if (error == CO_OK && mkdir(files->folders[i], 0700) != 0 && errno != EEXIST) {
            error = fault_set(fault, co_from_errno(errno), "%s: %s", files->folders[i], strerror(errno));
        }
    }
    /* Not yet local->files: what is loaded need not be saved again. */
    for (int i = 0; i < 2 && error == CO_OK; i++) error = load_folder(local, files->folders[i], fault);
    if (error != CO_OK) {
        free(files->folders[0]);
        free(files->folders[1]);
        free(files);
        return error;
    }
    files->work.data = files;
    uv_timer_init(local->loop, &files->retry);
    files->retry.data = files;
    local->files = files;
    return CO_OK;
}
