#include "rpc/wire/handshakes.h"

void handshake_init(struct handshake *handshake, void (*go)(struct handshake *handshake)) {
    list_init(&handshake->link);
    handshake->begun = false, handshake->go = go;
}

void handshakes_init(struct handshakes *handshakes, unsigned per_turn) {
    CHECK(per_turn > 0);
    list_init(&handshakes->begun);
    list_init(&handshakes->fresh);
    handshakes->per_turn = handshakes->left = per_turn;
    handshakes->waiting = 0;
}

bool handshake_waits(const struct handshake *handshake) { return !list_empty(&handshake->link); }

static void take_turn(struct handshakes *handshakes, struct handshake *handshake) {
    handshakes->left--;
    handshake->begun = true;
}

bool handshakes_ask(struct handshakes *handshakes, struct handshake *handshake) {
    if (handshake_waits(handshake)) return false;
    bool somebody_first = !list_empty(&handshakes->begun) || (!handshake->begun && !list_empty(&handshakes->fresh));
    if (handshakes->left > 0 && !somebody_first) {
        take_turn(handshakes, handshake);
        return true;
    }
    list_append(handshake->begun ? &handshakes->begun : &handshakes->fresh, &handshake->link);
    handshakes->waiting++;
    return false;
}

struct handshake *handshakes_next(struct handshakes *handshakes) {
    if (handshakes->left == 0 || handshakes->waiting == 0) return NULL;
    struct list *from = list_empty(&handshakes->begun) ? &handshakes->fresh : &handshakes->begun;
    struct handshake *handshake = LIST_ENTRY(from->next, struct handshake, link);
    handshakes_leave(handshakes, handshake);
    take_turn(handshakes, handshake);
    return handshake;
}

void handshakes_turn(struct handshakes *handshakes) { handshakes->left = handshakes->per_turn; }

void handshakes_leave(struct handshakes *handshakes, struct handshake *handshake) {
    if (!handshake_waits(handshake)) return;
    list_remove(&handshake->link);
    handshakes->waiting--;
}
