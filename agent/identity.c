#include "agent/identity.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_lock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"

/* -- folder ------------------------------------------------------------------------------------------------------- */
int identity_folder_make(const char *path, struct fault *fault) {
    char part[4096];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1;; at++) {
        if (*at != '/' && *at != 0) continue;
        char kept = *at;
        *at = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return fault_set(fault, co_from_errno(errno), "data folder %s: %s", part, strerror(errno));
        if (!kept) return CO_OK;
        *at = kept;
    }
}

static int open_folder(const struct config *config, struct identity *identity, struct fault *fault) {
    if (config->data_dir) {
        identity->data_dir = mem_strdup(config->data_dir);
        return identity_folder_make(identity->data_dir, fault);
    }
    const char *tmp = getenv("TMPDIR");
    struct buffer path = {0};
    buffer_printf(&path, "%s/coord-dev-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    buffer_append_byte(&path, 0);
    identity->data_dir = buffer_take(&path, NULL);
    if (!mkdtemp(identity->data_dir))
        return fault_set(fault, co_from_errno(errno), "temporary folder %s: %s", identity->data_dir, strerror(errno));
    identity->temporary = true;
    return CO_OK;
}

int identity_lock(const char *folder, bool make, int *fd, struct fault *fault) {
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", folder);
    *fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    if (*fd < 0) return fault_set(fault, co_from_errno(errno), "%s: %s", path, strerror(errno));
    if (file_lock(*fd)) return CO_OK;
    close(*fd);
    *fd = -1;
    return fault_set(fault, CO_BUSY, "data folder %s is in use by another agent", folder);
}

/* -- name and id -------------------------------------------------------------------------------------------------- */
/* Returns 0, or errno. */
static int write_id(const char *path, const char *id) {
    char aside[4096 + 8];
    snprintf(aside, sizeof aside, "%s.new", path);
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    ssize_t size = write(fd, id, UUID_TEXT_SIZE);
    int error = size < 0 || (size == UUID_TEXT_SIZE && fsync(fd) != 0) ? errno : size < UUID_TEXT_SIZE ? ENOSPC : 0;
    close(fd);
    if (!error && rename(aside, path) != 0) error = errno;
    return error;
}

static int find_id(const struct config *config, struct identity *identity, struct fault *fault) {
    char path[4096];
    snprintf(path, sizeof path, "%s/node-id", identity->data_dir);
    if (config->node_id) {
        snprintf(identity->node_id, sizeof identity->node_id, "%s", config->node_id);
        return CO_OK;
    }
    FILE *file = fopen(path, "re");
    if (file) {
        size_t got = fread(identity->node_id, 1, UUID_TEXT_SIZE, file);
        fclose(file);
        if (uuid_valid(slice_make(identity->node_id, got))) return CO_OK;
        return fault_set(fault, CO_CORRUPT, "%s holds no node id: remove it to get a new one", path);
    }
    random_uuid(identity->node_id);
    int error = write_id(path, identity->node_id);
    return error ? fault_set(fault, co_from_errno(error), "%s cannot be written: %s", path, strerror(error)) : CO_OK;
}

void identity_host_name(char name[256]) {
    name[255] = 0;
    if (gethostname(name, 255) != 0 || !name[0]) snprintf(name, 256, "localhost");
}

/* -- address ------------------------------------------------------------------------------------------------------ */
static bool any_address(const char *text) { return strcmp(text, "0.0.0.0") == 0 || strcmp(text, "::") == 0; }

static bool is_private(uint32_t ip) {
    return ip >> 24 == 10 || ip >> 20 == (172 << 4 | 1) || ip >> 16 == (192 << 8 | 168);
}

/* The first private IPv4 address of the host, as Consul picks it; loopback when there is none. */
void identity_host_address(char out[64]) {
    struct ifaddrs *list = NULL;
    snprintf(out, 64, "127.0.0.1");
    if (getifaddrs(&list) != 0) return;
    for (struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK)) continue;
        struct in_addr ip = ((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr;
        if (!is_private(ntohl(ip.s_addr))) continue;
        inet_ntop(AF_INET, &ip, out, 64);
        break;
    }
    freeifaddrs(list);
}

int identity_open(const struct config *config, struct identity *identity, struct fault *fault) {
    *identity = (struct identity){.lock_fd = -1};
    int rv = open_folder(config, identity, fault);
    if (rv == CO_OK) rv = identity_lock(identity->data_dir, true, &identity->lock_fd, fault);
    if (rv == CO_OK) rv = find_id(config, identity, fault);
    if (rv != CO_OK) {
        identity_close(identity);
        return rv;
    }
    if (config->node_name) snprintf(identity->node_name, sizeof identity->node_name, "%s", config->node_name);
    else identity_host_name(identity->node_name);
    if (config->advertise_addr) snprintf(identity->address, sizeof identity->address, "%s", config->advertise_addr);
    else if (any_address(config->bind_addr)) identity_host_address(identity->address);
    else snprintf(identity->address, sizeof identity->address, "%s", config->bind_addr);
    return CO_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void identity_close(struct identity *identity) {
    if (identity->lock_fd >= 0) close(identity->lock_fd);
    if (identity->temporary) nftw(identity->data_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(identity->data_dir);
    *identity = (struct identity){.lock_fd = -1};
}
