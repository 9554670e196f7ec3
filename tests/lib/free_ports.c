#include "tests/lib/free_ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"

#define LOWEST  10000
#define HIGHEST 31999 /* Linux gives 32768 and above */

void free_ports(unsigned count, uint16_t *ports) {
    int sockets[FREE_PORTS_MOST];
    CHECK(count <= FREE_PORTS_MOST);
    for (unsigned i = 0; i < count; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int rv;
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        do {
            ports[i] = (uint16_t)(LOWEST + random_u64() % (HIGHEST - LOWEST + 1));
            address.sin_port = htons(ports[i]);
            rv = bind(sockets[i], (struct sockaddr *)&address, sizeof address);
        } while (rv != 0 && errno == EADDRINUSE);
        CHECK(rv == 0);
    }
    for (unsigned i = 0; i < count; i++) close(sockets[i]);
}
