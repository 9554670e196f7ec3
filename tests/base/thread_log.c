/* Lines from several threads stay whole while the sink changes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum { WRITERS = 4, EACH = 5000 };

static void count(void *data, enum log_level level, const char *line, size_t size) {
    CHECK(level == LOG_WARN && line[size - 1] == '\n');
    CHECK(memchr(line, '\n', size) == line + size - 1);
    ++*(int *)data;
}

static void *write_all(void *argument) {
    for (int i = 0; i < EACH; i++) log_warn("test", "line=%d", i);
    return argument;
}

int main(void) {
    int first = 0, second = 0;
    pthread_t threads[WRITERS];
    log_set_sink(count, &first);
    for (int i = 0; i < WRITERS; i++) CHECK(pthread_create(&threads[i], NULL, write_all, NULL) == 0);
    for (int i = 0; i < 1000; i++) {
        log_set_sink(count, i % 2 ? &first : &second);
        log_level_now = i % 2 ? LOG_INFO : LOG_WARN;
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    log_set_sink(NULL, NULL);
    CHECK(first + second == WRITERS * EACH);
    puts("ok");
    return 0;
}
