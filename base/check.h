/* Assertions for our own mistakes. They stay on in release builds: a server that goes on with broken state is worse
 * than one that stops and is restarted. Never assert anything that a peer, a client or a disk can cause. */
#ifndef COORD_BASE_CHECK_H
#define COORD_BASE_CHECK_H

_Noreturn void check_failed(const char *file, int line, const char *what);

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (__builtin_expect(!(condition), 0)) check_failed(__FILE__, __LINE__, #condition); \
    } while (0)

#define UNREACHABLE() check_failed(__FILE__, __LINE__, "unreachable")

#define ARRAY_COUNT(a)                      (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
