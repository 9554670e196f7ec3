#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

/* Releases the segments that cannot be written. Writable ones hold relocations and data, and stay. */
static int release(struct dl_phdr_info *info, size_t size, void *data) {
    uintptr_t page = *(const uintptr_t *)data;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_W)) continue;
        uintptr_t from = (info->dlpi_addr + part->p_vaddr) & ~(page - 1),
                  to = (info->dlpi_addr + part->p_vaddr + part->p_filesz) & ~(page - 1);
        /* only advice: the kernel may refuse it for its own pages */
        if (to > from) (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
    return 0;
}

void mem_release_code(void) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    dl_iterate_phdr(release, &page);
}
