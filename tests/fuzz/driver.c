/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer: every file of the corpus as it is, then seeded mutations of
 * them for a number of seconds. The same seed makes the same inputs, however many of them fit in.
 *
 *   seeded_NAME SEED SECONDS CORPUS
 *   seeded_NAME FILE                 one input, to reproduce a finding
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../support/rng.h"
#include "base/clock.h"
#include "fuzz.h"

enum { INPUT_MAX = 4096, MAX_CORPUS = 256, HANG_S = 20 };

struct input {
    size_t size;
    uint8_t data[INPUT_MAX];
};

static struct input corpus[MAX_CORPUS];
static size_t corpus_count;
static struct input current;
static uint64_t runs;

static int load(const char *path, struct input *ret)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    ret->size = fread(ret->data, 1, INPUT_MAX, f);
    (void)fclose(f);
    return 0;
}

static void run(const struct input *in)
{
    /* A copy of the exact size lets a sanitizer see a read past its end. */
    uint8_t *copy = malloc(in->size ? in->size : 1);
    if (!copy)
        abort();
    memcpy(copy, in->data, in->size);
    (void)alarm(HANG_S); /* no input may take this long; the signal ends the test */
    (void)LLVMFuzzerTestOneInput(copy, in->size);
    free(copy);
    runs++;
}

static void mutate(struct input *in, struct rng *r)
{
    for (uint64_t edits = 1 + rng_below(r, 6); edits > 0; edits--) {
        size_t at = in->size ? (size_t)rng_below(r, in->size) : 0;
        switch (rng_below(r, 6)) {
        case 0: /* overwrite */
            if (in->size)
                in->data[at] = (uint8_t)rng_next(r);
            break;
        case 1: /* flip a bit */
            if (in->size)
                in->data[at] ^= (uint8_t)(1U << rng_below(r, 8));
            break;
        case 2: /* insert */
            if (in->size < INPUT_MAX) {
                memmove(in->data + at + 1, in->data + at, in->size - at);
                in->data[at] = (uint8_t)rng_next(r);
                in->size++;
            }
            break;
        case 3: /* remove */
            if (in->size) {
                memmove(in->data + at, in->data + at + 1, in->size - at - 1);
                in->size--;
            }
            break;
        case 4: { /* splice another file's tail on */
            const struct input *o = &corpus[rng_below(r, corpus_count)];
            size_t n = o->size < INPUT_MAX - at ? o->size : INPUT_MAX - at;
            memcpy(in->data + at, o->data, n);
            in->size = at + n;
            break;
        }
        default: { /* a number with edges */
            static const uint64_t edge[] = {0,          1,          0x7f,       0xff,
                                            0x7fffffff, 0xffffffff, UINT64_MAX, 1ULL << 40};
            uint64_t v = edge[rng_below(r, sizeof(edge) / sizeof(edge[0]))];
            size_t n = 1U << rng_below(r, 4);
            if (at + n <= in->size)
                memcpy(in->data + at, &v, n);
        }
        }
    }
}

static int load_corpus(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d)) && corpus_count < MAX_CORPUS;) {
        char path[1024];
        (void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && load(path, &corpus[corpus_count]) == 0)
            corpus_count++;
    }
    (void)closedir(d);
    return corpus_count > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && load(argv[1], &current) == 0) {
        run(&current);
        return 0;
    }
    if (argc != 4 || load_corpus(argv[3]) < 0) {
        fprintf(stderr, "usage: %s SEED SECONDS CORPUS, or %s FILE\n", argv[0], argv[0]);
        return 2;
    }
    struct rng r = {strtoull(argv[1], NULL, 10)};
    uint64_t end = sl_now_ns() + strtoull(argv[2], NULL, 10) * SL_NS_PER_S;
    for (size_t i = 0; i < corpus_count; i++)
        run(&corpus[i]);
    while (sl_now_ns() < end) {
        current = corpus[rng_below(&r, corpus_count)];
        mutate(&current, &r);
        run(&current);
    }
    printf("%zu files, %" PRIu64 " inputs, nothing found (seed %s)\n", corpus_count, runs, argv[1]);
    return 0;
}
