/* When is an existing store trusted? It was closed cleanly, or the machine has not been restarted, so that the kernel
 * has every page that was written; nobody has fenced it; and it was read to its end without damage. That reading is
 * done without LMDB, which does not check pages and may crash on damaged ones (store_examine.c). A larger store, which
 * would delay the start of the server for long, is read only when a signal ended the process before. After two such
 * signals, or one while the store was being opened, it is made anew, because something is wrong that the reading does
 * not see. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "registry/store_file.h"

#define EXAMINE_BYTES_MOST ((uint64_t)256 << 20) /* about a tenth of a second */
#define EXAMINE_MS_MOST    500                   /* when it has to be read from a slow disk */
#define CRASHES_MOST       1

static bool too_long(void *data) {
    const uint64_t *until_ms = data;
    return clock_mono_ms() >= *until_ms;
}

static bool examine(const struct store *store, const char *path, uint64_t until_ms, bool *examined) {
    struct store_scrubbed found = {0};
    struct fault fault = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC), error;
    if (fd < 0) error = fault_set(&fault, co_from_errno(errno), "it cannot be opened");
    else error = store_examine_file(fd, &store->config, 0, too_long, &until_ms, &found, &fault);
    if (fd >= 0) close(fd);
    *examined = error != CO_AGAIN;
    if (error == CO_OK || error == CO_AGAIN || error == CO_UNSUPPORTED) return true; /* the last: whole, but not ours */
    log_error("store", "damaged, it is rebuilt from snapshot and log file=%s reason=\"%s\"", path, fault.text);
    return false;
}

static bool sound(const struct store *store, const char *path, const struct stat *info, bool *examined) {
    unsigned crashes = store_crashes(store->folder);
    uint64_t allocated = (uint64_t)info->st_blocks * 512;
    uint64_t bytes = (uint64_t)info->st_size < allocated ? (uint64_t)info->st_size : allocated;
    if (crashes > CRASHES_MOST) {
        log_error("store", "processes died of signals with it, it is rebuilt from snapshot and log file=%s", path);
        return false;
    }
    uint64_t most = store->config.examine_bytes ? store->config.examine_bytes : EXAMINE_BYTES_MOST;
    if (crashes == 0 && bytes > most) return true;
    if (!examine(store, path, crashes ? UINT64_MAX : clock_mono_ms() + EXAMINE_MS_MOST, examined)) return false;
    if (crashes) log_warn("store", "the process died of a signal; the store was examined and is whole file=%s", path);
    return true;
}

bool store_trust(const struct store *store, const char *path, const struct stat *info, bool *examined) {
    bool clean, fits = store_marker_fits(store->folder, info, &clean);
    *examined = false;
    if (info->st_size > 0 && store_marker_foreign(store->folder))
        log_info("store", "of another version's format, it is rebuilt from snapshot and log file=%s", path);
    return info->st_size > 0 && (fits || clean) && !store->config.distrust && !store_fenced(store->folder, NULL, 0) &&
           sound(store, path, info, examined);
}
