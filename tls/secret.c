#include "tls/secret.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

void tls_secret_free(struct tls_secret *secret) {
    if (secret->data) {
        explicit_bzero(secret->data, secret->mapped);
        CHECK(munmap(secret->data, secret->mapped) == 0);
    }
    *secret = (struct tls_secret){0};
}

int tls_secret_set(struct tls_secret *secret, struct slice bytes, struct fault *fault) {
    tls_secret_free(secret);
    if (!bytes.size) return CO_OK;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t mapped = (bytes.size + page - 1) / page * page;
    void *data = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return fault_set(fault, CO_NOMEM, "no memory for a key");
    (void)madvise(data, mapped, MADV_DONTDUMP); /* kernels without it put the pages into core dumps */
    (void)mlock(data, mapped);                  /* RLIMIT_MEMLOCK may forbid it; then the key may be swapped out */
    memcpy(data, bytes.data, bytes.size);
    *secret = (struct tls_secret){data, bytes.size, mapped};
    return CO_OK;
}
