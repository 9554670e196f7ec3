/* Many threads put and count, one takes: nothing is lost, each sender's order is kept, and a wake-up is promised
 * whenever the taker may sleep. A plain main, so that it runs under the thread sanitizer. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/mailbox.h"
#include "base/memory.h"
#include "base/metrics.h"

enum { SENDERS = 4, EACH = 20000 };

struct letter {
    struct mail mail;
    int sender, number;
};

static struct mailbox box;
static int wakeup;
METRIC sent = {.name = "t_sent_total", .help = "Sent.", .type = METRIC_COUNTER};
METRIC wait_time = {.name = "t_wait_seconds", .help = "Waits.", .type = METRIC_HISTOGRAM};

static void *send_all(void *argument) {
    int sender = (int)(intptr_t)argument;
    metric_register(&sent);
    for (int i = 0; i < EACH; i++) {
        struct letter *letter = mem_alloc(sizeof *letter);
        letter->sender = sender;
        letter->number = i;
        metric_add(&sent, 1);
        metric_observe_ns(&wait_time, (uint64_t)i * 1000);
        uint64_t one = 1;
        if (mailbox_put(&box, &letter->mail)) CHECK(write(wakeup, &one, 8) == 8);
    }
    return NULL;
}

static int take_all(int next[SENDERS]) {
    int taken = 0;
    for (struct mail *mail = mailbox_take(&box), *after; mail; mail = after, taken++) {
        after = mail->next;
        struct letter *letter = (struct letter *)mail;
        CHECK(letter->number == next[letter->sender]++);
        free(letter);
    }
    return taken;
}

int main(void) {
    wakeup = eventfd(0, 0);
    metric_register(&wait_time);
    pthread_t threads[SENDERS];
    for (int i = 0; i < SENDERS; i++) CHECK(pthread_create(&threads[i], NULL, send_all, (void *)(intptr_t)i) == 0);
    int next[SENDERS] = {0};
    struct buffer printed = {0};
    for (int taken = 0; taken < SENDERS * EACH;) {
        struct pollfd event = {.fd = wakeup, .events = POLLIN};
        CHECK(poll(&event, 1, 30000) == 1); /* a lost wake-up ends here */
        uint64_t count;
        CHECK(read(wakeup, &count, 8) == 8);
        taken += take_all(next);
        buffer_reset(&printed);
        metrics_print(&printed);
    }
    for (int i = 0; i < SENDERS; i++) pthread_join(threads[i], NULL);
    CHECK(mailbox_take(&box) == NULL);
    CHECK(atomic_load(&sent.value) == (uint64_t)SENDERS * EACH);
    uint64_t observed = 0;
    for (int i = 0; i < METRIC_BUCKETS; i++) observed += atomic_load(&wait_time.buckets[i]);
    CHECK(observed == (uint64_t)SENDERS * EACH);
    buffer_free(&printed);
    close(wakeup);
    puts("ok");
    return 0;
}
