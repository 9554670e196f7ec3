#include "tests/lib/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

const char *scratch_folder(void) {
    static char paths[8][64];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof paths[0], "%s/coord-test-XXXXXX", parent);
    CHECK(mkdtemp(path) != NULL);
    return path;
}

void scratch_remove(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) != 0) scratch_remove(path);
    }
    closedir(dir);
    rmdir(folder);
}

struct store_config scratch_config(const char *folder, const struct store_table *tables, size_t count) {
    return (struct store_config){.folder = folder,
                                 .map_bytes = (uint64_t)1 << 30,
                                 .reserve_step_bytes = 1 << 20,
                                 .tables = tables,
                                 .table_count = count};
}
