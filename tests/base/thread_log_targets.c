/* Lines of several threads arrive in the file, whole and each once, while it is opened anew again and again. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log_targets.h"

enum { WRITERS = 4, EACH = 2000 };

static char path[64];

static void *write_all(void *argument) {
    for (int i = 0; i < EACH; i++) log_warn("test", "line=%d", i);
    return argument;
}

static int lines_in_file(void) {
    FILE *file = fopen(path, "r");
    int lines = 0;
    CHECK(file);
    for (char line[256]; fgets(line, sizeof line, file); lines++) {
        CHECK(strstr(line, "Z [WARN] test: line=") == line + 23);
        CHECK(line[strlen(line) - 1] == '\n');
    }
    fclose(file);
    return lines;
}

int main(void) {
    struct log_targets_config config = {.file = path};
    struct fault fault = {0};
    pthread_t threads[WRITERS];
    snprintf(path, sizeof path, "/tmp/coord-thread-log-%d.log", (int)getpid());
    CHECK(freopen("/dev/null", "w", stderr));
    CHECK(log_targets_open(&config, &fault) == CO_OK);
    for (int i = 0; i < WRITERS; i++) CHECK(pthread_create(&threads[i], NULL, write_all, NULL) == 0);
    for (int i = 0; i < 200; i++) log_targets_reopen();
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    log_targets_close();
    int lines = lines_in_file();
    unlink(path);
    CHECK(lines == WRITERS * EACH);
    puts("ok");
    return 0;
}
