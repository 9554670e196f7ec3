/* coord verify */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/modules.h"
#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "rpc/offline/verify.h"

static const char usage[] = "coord verify -data-dir=DIR";

static void line(void *data, const char *part, const char *text) {
    (void)data;
    printf("%-12s %s\n", part, text);
}

/* The lock is held while the folder is read, so that no agent starts meanwhile. Without its file no agent ever ran
 * here. */
static int lock(const char *folder, int *fd, struct fault *fault) {
    struct stat info;
    if (stat(folder, &info) != 0) return fault_set(fault, co_from_errno(errno), "%s: %s", folder, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return fault_set(fault, CO_INVALID, "%s: is no folder", folder);
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", folder);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 && errno != ENOENT) return fault_set(fault, co_from_errno(errno), "%s: %s", path, strerror(errno));
    if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) == 0) return CO_OK;
    return fault_set(fault, CO_BUSY, "%s: in use by a running agent: stop it first", folder);
}

static void verify_node_id(const char *folder, struct fault *fault) {
    char path[4096], id[UUID_TEXT_SIZE + 1] = "";
    snprintf(path, sizeof path, "%s/node-id", folder);
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT) {
        line(NULL, "node", "no id is kept");
        return;
    }
    size_t got = file ? fread(id, 1, UUID_TEXT_SIZE, file) : 0;
    if (file) fclose(file);
    struct fault own = {0};
    if (uuid_valid(slice_make(id, got))) line(NULL, "node", id);
    else {
        fault_set(&own, CO_CORRUPT, "%s holds no node id", path);
        line(NULL, "node", own.text);
        fault_set(fault, own.code, "%s", own.text);
    }
}

int cmd_verify(int argc, char **argv) {
    const char *folder = NULL;
    const struct cmd_flag flags[] = {{"data-dir", CMD_TEXT, &folder, "data folder of a stopped server"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest);
    if (code >= 0) return code;
    if (!folder || !folder[0] || rest[0]) return cmd_wrong(usage, "-data-dir is wanted, and nothing else");
    log_level_now = LOG_ERROR;
    struct fault fault = {0}, of_id = {0};
    int fd = -1;
    if (lock(folder, &fd, &fault) == CO_OK) {
        verify_node_id(folder, &of_id);
        fflush(stdout);
        struct verify_config config = {.folder = folder, .modules = agent_modules, .line = line};
        (void)verify_run(&config, &fault);
        if (!fault.code) fault = of_id;
    }
    if (fd >= 0) close(fd);
    if (fault.code) printf("no: %s\n", fault.text);
    else puts("yes");
    return fault.code ? 1 : 0;
}
