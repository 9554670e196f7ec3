#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/background.h"

static int nice_here(void) { return getpriority(PRIO_PROCESS, (id_t)gettid()); }

static void *child(void *arg) {
    *(int *)arg = nice_here();
    return NULL;
}

struct seen {
    int own, of_child;
    char name[16];
};

static void *background(void *arg) {
    struct seen *seen = arg;
    background_thread("quiet");
    seen->own = nice_here();
    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, child, &seen->of_child), 0);
    pthread_join(thread, NULL);
    return NULL;
}

Test(background, gives_way_with_what_it_starts_and_nobody_else_does) {
    int before = nice_here();
    if (before >= 19) cr_skip_test("this process gives way to all others already");
    struct seen seen = {0};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, background, &seen), 0);
    pthread_join(thread, NULL);
    cr_assert_gt(seen.own, before);
    cr_assert_eq(seen.of_child, seen.own);
    cr_assert_str_eq(seen.name, "quiet");
    cr_assert_eq(nice_here(), before);
}
