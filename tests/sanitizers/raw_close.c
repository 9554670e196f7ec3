/* libuv closes descriptors by syscall(SYS_close, ...), which the thread sanitizer does not see: the number's next
 * owner would then be said to race with the last. In its build the program's own syscall() comes first, and closes
 * where that looks. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long (*syscall_function)(long number, long a, long b, long c, long d, long e, long f);

long syscall(long number, ...) {
    static _Atomic(syscall_function) real;
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_close) return close((int)a[0]);
    syscall_function next = real;
    if (!next) {
        next = (syscall_function)dlsym(RTLD_NEXT, "syscall");
        if (!next) abort();
        real = next;
    }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
