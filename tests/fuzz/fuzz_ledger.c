/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile ledger page. The input is a list of 12-byte steps: bytes written anywhere in the page as
 * a tenant could, and every function of the account with any argument. Nothing may crash, reach
 * outside the page (it lies between two forbidden ones), loop, or grant past the limit it sees.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "shm/account.h"

struct step {
    uint8_t what;
    uint8_t gpu;
    uint16_t slot;
    uint64_t value;
} __attribute__((packed));

static struct sl_ledger_page *page;
static size_t page_bytes;

static void make_page(void)
{
    size_t edge = (size_t)sysconf(_SC_PAGESIZE);
    page_bytes = (sizeof(*page) + edge - 1) / edge * edge;
    char *all = mmap(NULL, page_bytes + 2 * edge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(all != MAP_FAILED);
    FUZZ_CHECK(mprotect(all + edge, page_bytes, PROT_READ | PROT_WRITE) == 0);
    page = (struct sl_ledger_page *)(void *)(all + edge);
}

/* An index mostly in range, at times far out of it. */
static uint32_t wild(uint32_t index, uint32_t bound, uint64_t salt)
{
    if (salt % 16 == 15)
        return (uint32_t)(salt >> 7) | 0x80000000U;
    return salt % 16 == 14 ? bound : index % bound;
}

static void reserve(uint32_t slot, uint32_t gpu, uint64_t value)
{
    uint64_t before = sl_account_total(page, gpu), limit = value >> 24, units = value & 0xffffff;
    int rc = sl_account_reserve(page, slot, gpu, units, limit);
    FUZZ_CHECK(rc == 0 || rc == -ENOMEM || rc == -EINVAL);
    FUZZ_CHECK((rc == -EINVAL) == (slot >= SL_MAX_SLOTS || gpu >= SL_MAX_GPUS));
    if (rc == 0)
        FUZZ_CHECK(sl_account_total(page, gpu) <= limit &&
                   sl_account_total(page, gpu) == before + units);
    else
        FUZZ_CHECK(sl_account_total(page, gpu) == before);
}

static void apply(const struct step *s)
{
    uint32_t slot = wild(s->slot, SL_MAX_SLOTS, s->value >> 3);
    uint32_t gpu = wild(s->gpu, SL_MAX_GPUS, s->value >> 11);
    switch (s->what % 8) {
    case 0: /* the total, tag and all */
        atomic_store(&page->total[s->gpu % SL_MAX_GPUS].word, s->value);
        break;
    case 1: { /* a slot's books */
        struct sl_slot_memory *m = &page->slot[s->slot % SL_MAX_SLOTS].memory[s->gpu % SL_MAX_GPUS];
        _Atomic uint64_t *words[] = {&m->applied, &m->used[0], &m->used[1]};
        atomic_store(words[s->what / 8 % 3], s->value);
        break;
    }
    case 2: { /* anything, anywhere, at any alignment */
        size_t at = (s->value >> 8) % (sizeof(*page) - sizeof(s->value));
        memcpy((char *)page + at, &s->value, sizeof(s->value));
        break;
    }
    case 3:
    case 4:
        reserve(slot, gpu, s->value);
        break;
    case 5:
        sl_account_release(page, slot, gpu, s->value);
        break;
    case 6: {
        bool done = sl_account_reap(page, slot);
        FUZZ_CHECK(done == (slot < SL_MAX_SLOTS)); /* alone, it always finishes */
        for (uint32_t g = 0; done && g < SL_MAX_GPUS; g++)
            FUZZ_CHECK(sl_account_slot(page, slot, g) == 0);
        break;
    }
    default:
        FUZZ_CHECK(sl_account_slot(page, slot, gpu) < (1ULL << 40));
        FUZZ_CHECK(sl_account_total(page, gpu) < (1ULL << 40));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!page)
        make_page();
    FUZZ_CHECK(madvise(page, page_bytes, MADV_DONTNEED) == 0); /* zero again */
    struct step s;
    for (size_t i = 0; i + sizeof(s) <= size; i += sizeof(s)) {
        memcpy(&s, data + i, sizeof(s));
        apply(&s);
    }
    if (size % sizeof(s) == 1) { /* it walks the whole page: not every time */
        sl_account_clear(page);
        for (uint32_t g = 0; g < SL_MAX_GPUS; g++)
            FUZZ_CHECK(sl_account_total(page, g) == 0);
    }
    return 0;
}
