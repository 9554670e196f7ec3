/* clang's sanitizer takes NULL + 0 for undefined. An empty array without memory is that everywhere here, every compiler
 * gives NULL, and C2y says so too; gcc's sanitizer does not ask. All else that it says of pointers ends the program as it
 * would without this: linked with --wrap, and compiled with -fsanitize-recover=pointer-overflow, or it could not return. */
#include <stdint.h>

void __wrap___ubsan_handle_pointer_overflow(void *data, uintptr_t base, uintptr_t result);
void __ubsan_handle_pointer_overflow_abort(void *data, uintptr_t base, uintptr_t result);

void __wrap___ubsan_handle_pointer_overflow(void *data, uintptr_t base, uintptr_t result) {
    if (base != 0 || result != 0) __ubsan_handle_pointer_overflow_abort(data, base, result);
}
