/* Acts for handshakes.h on a loop: all links that one listener accepts share one of these (rpc/wire/link.h). Loop thread
 * only. */
#ifndef COORD_RPC_HANDSHAKES_RUN_H
#define COORD_RPC_HANDSHAKES_RUN_H

#include <uv.h>

#include "rpc/wire/handshakes.h"

#define HANDSHAKES_PER_TURN 4

struct handshakes_run;
struct handshakes_run *handshakes_run_new(uv_loop_t *loop, unsigned per_turn);
/* Every link that was accepted with it has been closed before (link_close), or is connected. Its memory goes when the loop
 * has turned. NULL: nothing. */
void handshakes_run_free(struct handshakes_run *run);
/* True: go on at once. False: handshake->go is called later from the loop. */
bool handshakes_run_ask(struct handshakes_run *run, struct handshake *handshake);
void handshakes_run_leave(struct handshakes_run *run, struct handshake *handshake);
size_t handshakes_run_waiting(const struct handshakes_run *run);

#endif
