/* Not a target: shows that the limit on CPU time holds. 'B' burns it, 'W' only takes long. */
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (volatile int stay = 1; size && data[0] == 'B' && stay;) continue;
    if (size && data[0] == 'W') sleep(3);
    return 0;
}
