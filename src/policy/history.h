/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant asked for and got, when it has ended: the entry, its line of text, and the advice that entries give.
 * Pure: no I/O, no clock.
 *
 * A line is words of key=value, with a checksum at the end; the file of the arbiter and its answers are made of such
 * lines. A reader ignores keys that it does not know, so that builds of different age can read each other's lines.
 */
#ifndef SLUICE_POLICY_HISTORY_H
#define SLUICE_POLICY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_HISTORY_GPUS     16
#define SL_HISTORY_LINE_MAX 2304 /* with its NUL; the longest line has less */
#define SL_HISTORY_NAME_MAX 64
#define SL_HISTORY_UUID_MAX 64
#define SL_HISTORY_NO_LIMIT UINT64_MAX

/* The most that is kept, whichever is reached first. */
#define SL_HISTORY_ENTRIES 1000U
#define SL_HISTORY_BYTES   (256UL << 10)

/* How it ended. */
enum sl_history_end {
    SL_HISTORY_UNKNOWN, /* its `sluice run` was killed, or ended while no arbiter ran */
    SL_HISTORY_EXIT,    /* the command ended with this code … */
    SL_HISTORY_SIGNAL,  /* … or by this signal */
    SL_HISTORY_REMOVED, /* a tenant of containers */
};

struct sl_history_entry {
    uint64_t id; /* of this run: the same name may come again */
    char name[SL_HISTORY_NAME_MAX];
    char command[32]; /* the file name of the program, without its folder; may be empty */
    uint32_t uid;     /* who ran it */
    uint64_t started_ms, ended_ms;                         /* since 1970 */
    uint64_t waited_ms;                                    /* in line */
    uint32_t cores_request_permille, cores_limit_permille; /* request 0: none */
    /* GPU time is measured while the tenant has a limit of cores, or company on the GPU. */
    uint64_t work_ms;     /* time in which it had work, as long as it was not paused … */
    uint64_t measured_ms; /* … of which GPU time was measured for so long … */
    uint64_t used_ms;     /* … and so much was used */
    enum sl_history_end end;
    uint32_t code; /* exit code, or signal */
    uint32_t gpu_count;
    struct {
        char uuid[SL_HISTORY_UUID_MAX];
        uint32_t index;       /* as nvidia-smi counts */
        uint64_t asked_bytes; /* SL_HISTORY_NO_LIMIT: none */
        uint64_t peak_bytes;
    } gpu[SL_HISTORY_GPUS];
};

/* Writes the line, without a line feed. Characters that a line cannot have become '?'. Returns its length. */
size_t sl_history_format(const struct sl_history_entry *e, char buf[SL_HISTORY_LINE_MAX]);
/* False: the line is damaged, and *ret is not changed. */
bool sl_history_parse(const char *line, size_t size, struct sl_history_entry *ret);

/* Cores that it got on average over the time that was measured, in permille. False: nothing was measured. */
bool sl_history_got(const struct sl_history_entry *e, uint32_t *ret_permille);
/* The GPU on which it came nearest to what it asked for; 0 where it asked for nothing. */
uint32_t sl_history_fullest(const struct sl_history_entry *e);

/* --- advice --- */

/* A hint is given when none of the latest runs of a name used one part in SL_HINT_RATIO of what was asked for … */
#define SL_HINT_RUNS           5U
#define SL_HINT_RATIO          2U
/* … and at least this much was in vain. */
#define SL_HINT_LEAST_BYTES    (1ULL << 30)
#define SL_HINT_LEAST_PERMILLE 50U
/* Runs that were too short to tell, by the time in which they had work. */
#define SL_HINT_LEAST_MS       10000U
/* What the hint proposes: the most that was used, and a fourth on top. */
#define SL_HINT_SPARE          4U

struct sl_history_hint {
    char name[SL_HISTORY_NAME_MAX];
    uint32_t uid;
    uint32_t runs;        /* it rests on so many */
    bool memory;          /* about memory, in bytes; else about cores, in permille */
    uint64_t asked, used; /* the latest request, and the most that a run used (cores: on average) */
    uint64_t enough;      /* what to ask for instead */
};

/* Hints about `count` entries, oldest first: at most `max`, of the names that ran last. Returns how many there are,
 * which may be more. */
size_t sl_history_hints(const struct sl_history_entry *entries, size_t count,
                        struct sl_history_hint *ret, size_t max);

#endif
